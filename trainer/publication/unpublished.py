"""Files that are passed over while a run is published."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from trainer.runtime.files import shown
from trainflow.protocol.lost_files import printable
from trainflow.protocol.publication import MAX_NAMED, Unpublished, UnpublishedFile


@dataclass(frozen=True, slots=True)
class Unpublishable:
    """A file that cannot be published."""

    name: str
    """Path below the run's folder, as the file system has it."""
    reason: str
    """The reason as a clause."""
    size: int = 0


class UnpublishedFiles:
    """Counts the files that are passed over, and keeps the first; threads may add at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_files = self._num_bytes = 0
        self._named: list[UnpublishedFile] = []

    def add(self, file: Unpublishable) -> None:
        """Count a file, and print its name."""
        name = printable(shown(file.name))
        with self._lock:
            self._num_files, self._num_bytes = self._num_files + 1, self._num_bytes + file.size
            if len(self._named) < MAX_NAMED:
                self._named.append(UnpublishedFile(name=name, num_bytes=file.size, reason=file.reason))
                print(f"{shown} is not published: {file.reason}.", flush=True)

    def all(self) -> Unpublished:
        """All that have been added."""
        with self._lock:
            return Unpublished(num_files=self._num_files, num_bytes=self._num_bytes, files=tuple(self._named))
