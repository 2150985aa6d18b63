"""Writes checkpoints in a thread, so that the training stops only for a copy in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from trainer.checkpoints.checkpoint import Progress
from trainer.checkpoints.checkpoint_files import CheckpointFile
from trainer.checkpoints.host_copy import HostCopy
from trainer.device import Device

Write = Callable[[Any, Progress], CheckpointFile | None]
"""Writes a state in host memory; returns None on ranks that only contribute their part."""


class CheckpointWriter:
    """Writes one checkpoint at a time: a second one waits until the first is on the disk."""

    def __init__(self, write: Write, device: Device) -> None:
        self._write = write
        self._copy = HostCopy(device)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[CheckpointFile | None] | None = None
        self.newest: CheckpointFile | None = None
        self.stops: list[float] = []
        """Seconds that each checkpoint stopped the training."""

    def prepare(self, state: Any) -> None:
        """Allocate memory for copies of such a state, while the training continues."""

        def make_room() -> None:
            self._copy.make_room(state)

        self._pending = self._thread.submit(make_room)

    def submit(self, state: Any, progress: Progress) -> None:
        """Copy the state as it is now, and write the copy while the training continues.

        Raises:
            StorageFailed: If the previous checkpoint could not be written.
        """
        began = time.perf_counter()
        self.wait()
        copy, wait_until_copied = self._copy.start(state)
        self.stops.append(time.perf_counter() - began)

        def write() -> CheckpointFile | None:
            wait_until_copied()
            return self._write(copy, progress)

        self._pending = self._thread.submit(write)

    def check(self) -> None:
        """Raise the error of the thread, if there is one, without waiting."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is on the disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self.newest = pending.result() or self.newest

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Wait for the last checkpoint, also after an error; the process may end only afterwards."""
        try:
            self.wait()
        except Exception:
            if error is None:
                raise
        finally:
            self._thread.shutdown()
