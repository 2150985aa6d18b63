"""The end of what programs print on stderr, while it is passed on unchanged."""

from __future__ import annotations

import os
from types import TracebackType

from trainer.runtime.workers import Worker

MAX_BYTES = 1 << 16
"""Bytes that are kept: torchrun's report is at the end."""

LAST_SECONDS = 2.0
"""Longest wait for the rest, after the programs have ended: another process may hold the pipe open."""


class StderrTail:
    """A pipe in place of stderr; a thread passes on each piece as it comes, also half lines."""

    def __init__(self) -> None:
        """Makes the pipe; use as a context manager."""
        self._reader, self.writer = os.pipe()
        self._kept = b""
        self._thread = Worker(self._pass_on, name="stderr-tail")

    def __enter__(self) -> StderrTail:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.writer)
        self._thread.join(LAST_SECONDS)

    @property
    def lines(self) -> list[str]:
        """The last lines, after the context has been left."""
        return self._kept.decode(errors="replace").splitlines()

    def _pass_on(self) -> None:
        with os.fdopen(self._reader, "rb", buffering=0) as pipe:
            while piece := pipe.read(MAX_BYTES):
                self._kept = (self._kept + piece)[-MAX_BYTES:]
                _write_all(piece)


def _write_all(piece: bytes) -> None:
    while piece:
        piece = piece[os.write(2, piece) :]
