"""Checkpoints that each node of a gang keeps in a folder of its own, in memory or on its disks.

A restart in the same pods begins with the newest one that all nodes have. A thread copies them to the shared storage,
which counts when a pod is lost (docs/decisions/0109-checkpoints-near-memory.md).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from trainer.checkpoints import checkpoint_files
from trainer.checkpoints.checkpoint_files import CheckpointFile, Record
from trainer.runtime.errors import CheckpointInvalid, StorageFailed

KEPT = 2
"""Complete checkpoints that a node keeps: a node that is killed while it writes has the one before, as all others."""


def newest_common(nodes: Sequence[Mapping[int, str]]) -> int | None:
    """Step of the newest checkpoint that all nodes have with the same content; None without one.

    Args:
        nodes: For each node, the SHA-256 of its checkpoints by their steps.
    """
    if not nodes:
        return None
    first, *others = nodes
    common = [step for step, sha256 in first.items() if all(other.get(step) == sha256 for other in others)]
    return max(common, default=None)


class NodeFolder:
    """The folder of this node. Once it is full, it takes no checkpoint any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = KEPT

    def write(self, write: Callable[[Path], CheckpointFile], *, step: int) -> CheckpointFile | None:
        """Write a checkpoint, and delete old ones; None if the folder is full, which is printed once.

        Args:
            write: Writes the checkpoint into the folder that it is given, or raises StorageFailed.
            step: Step of the checkpoint.
        """
        while self._kept:
            try:
                written = write(self._folder)
            except StorageFailed as error:
                self._kept -= 1
                if self._kept:
                    checkpoint_files.keep_newest(self._folder, self._kept, until=step)
                else:
                    print(
                        f"Warning: this node's folder cannot take the checkpoint of step {step} ({error.__cause__}). "
                        "From now on checkpoints are written to the shared storage; a larger checkpoint.keep_local.gib "
                        "avoids this.",
                        flush=True,
                    )
            else:
                checkpoint_files.keep_newest(self._folder, self._kept, until=step)
                return written
        return None


@dataclass(frozen=True)
class _Opened:
    """A checkpoint that waits for its copy. Its file is open, so that it can be read after it was deleted."""

    record: Record
    file: BinaryIO


class BackgroundCopy:
    """Copies checkpoints to the shared storage in a thread, one at a time. One that still waits when a newer one comes
    is left out."""

    def __init__(self, copy: Callable[[BinaryIO, Record], CheckpointFile]) -> None:
        """
        Args:
            copy: Copies the content of a checkpoint, or raises StorageFailed.
        """
        self._copy = copy
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint-copy")
        self._lock = threading.Lock()
        self._waiting: _Opened | None = None
        self._copies: deque[Future[CheckpointFile | None]] = deque()
        self.newest: CheckpointFile | None = None
        """The newest copy that is complete, since `wait` or `check`."""

    def submit(self, source: CheckpointFile) -> None:
        """Copy a checkpoint while the training continues."""
        opened = _Opened(source.record, source.path.open("rb"))
        with self._lock:
            replaced, self._waiting = self._waiting, opened
        if replaced is not None:
            replaced.file.close()
        self._copies.append(self._thread.submit(self._copy_waiting))

    def check(self) -> None:
        """Raise the error of a copy, if there is one, without waiting.

        Raises:
            StorageFailed: If a checkpoint could not be copied.
        """
        while self._copies and self._copies[0].done():
            self.newest = self._copies.popleft().result() or self.newest

    def wait(self) -> None:
        """Wait until all copies are complete.

        Raises:
            StorageFailed: If a checkpoint could not be copied.
        """
        while self._copies:
            self.newest = self._copies.popleft().result() or self.newest

    def __enter__(self) -> BackgroundCopy:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Wait for the last copy, also after an error; the process may end only afterwards."""
        try:
            self.wait()
        except StorageFailed:
            if error is None:
                raise
        finally:
            self._thread.shutdown()

    def _copy_waiting(self) -> CheckpointFile | None:
        with self._lock:
            opened, self._waiting = self._waiting, None
        if opened is None:  # an earlier turn has copied it
            return None
        with opened.file:
            return self._copy(opened.file, opened.record)


def copy_to_shared(content: BinaryIO, record: Record, output_dir: Path) -> CheckpointFile:
    """Copy a node's checkpoint to the run's folder, complete or not at all.

    Raises:
        StorageFailed: If it cannot be read or written, or has another content than was written.
    """
    try:
        return checkpoint_files.copy(content, record, output_dir)
    except OSError as error:
        raise StorageFailed(
            f"The checkpoint of step {record.step} could not be copied from this node to {output_dir} ({error}); "
            "make room or give a folder that can be written. Earlier checkpoints are intact."
        ) from error
    except CheckpointInvalid as error:
        raise StorageFailed(
            f"The checkpoint of step {record.step} could not be copied from this node to {output_dir}, since {error}; "
            "check the node's memory and disks. Earlier checkpoints are intact."
        ) from error
