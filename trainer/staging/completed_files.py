"""A record of the complete files of a data set, which the next attempt reads after a crash.

A line is written only after the file's bytes have left this machine's memory, so the record holds if the node dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from trainer.runtime.errors import StorageFailed
from trainer.runtime.files import written_whole
from trainer.runtime.workers import Worker

SYNC_SECONDS = 1.0
"""Time between two writes of the record; a crash loses at most that much of the work, and the files in progress."""


REPLACED = -1
"""Size in an entry of a file that is being replaced, and so is not complete."""


class Entry(NamedTuple):
    """A complete file."""

    path: str
    size: int
    span: tuple[int, int] | None
    """Start and end of the file's member in a plain archive, headers and padding included."""
    crc: int | None = None
    """CRC of the span, where S3 keeps a CRC of the archive."""
    sha256: str | None = None
    """SHA-256 of the file's content, where it was computed."""


class CompletedFiles:
    """The complete files of one folder, for one version of a source."""

    def __init__(self, path: Path, folder: Path, *, source: str) -> None:
        """
        Args:
            path: File that holds the record.
            folder: Folder of the data set's files.
            source: The source of the files and its version. An earlier record of the same source and version is
                continued.

        Raises:
            StorageFailed: If the record cannot be written.
        """
        self._path = path
        self._folder = folder
        self._new: list[Entry] = []
        self._wanted = threading.Condition()
        self._syncing = threading.Lock()
        self._ended = False
        self._failure: OSError | None = None
        said = _read(path, source)
        if said is None:
            shutil.rmtree(folder, ignore_errors=True)  # files of another version
            folder.mkdir(parents=True, exist_ok=True)
        entries = _still_there(folder, said or [])
        self._complete = Counter((entry.path, entry.size) for entry in entries)
        self._paths = {entry.path for entry in entries}
        self._num_files = len(entries)
        self._num_bytes = sum(entry.size for entry in entries)
        self.spans: Mapping[int, int] = {entry.span[0]: entry.span[1] for entry in entries if entry.span}
        """End of each complete member of a plain archive, by its start."""
        self.crcs = {
            entry.span[0]: (entry.span[1], entry.crc) for entry in entries if entry.span and entry.crc is not None
        }
        """The same members with the CRC of their span, as far as it is known."""
        self.digests = {entry.path: entry.sha256 for entry in entries if entry.sha256 is not None}
        """SHA-256 by path, for complete files with a computed digest."""
        with written_whole(path) as file:
            file.writelines(f"{json.dumps(line)}\n".encode() for line in ({"source": source}, *entries))
        self._thread = Worker(self._sync_periodically, name="staging-record")

    def __enter__(self) -> Self:
        self._file = self._path.open("a", encoding="utf-8")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        with self._wanted:
            self._ended = True
            self._wanted.notify()
        self._thread.join()
        self._file.close()
        if kind is None:
            self._thread.require_no_error()
        if self._failure is not None and kind is None:
            raise StorageFailed(
                f"The data set could not be forced to disk below {self._folder} ({self._failure}); "
                "check the file system and start again."
            ) from self._failure

    @property
    def num_files(self) -> int:
        """Number of complete files, of earlier attempts and of this one."""
        return self._num_files

    @property
    def num_bytes(self) -> int:
        """Number of bytes in the files that earlier attempts completed."""
        return self._num_bytes

    def take(self, path: str, size: int) -> bool:
        """Take one entry of an earlier attempt for this file, if there is one. A path that an archive holds twice has
        two entries, and each of them can be taken once."""
        known = self._complete[path, size] > 0
        if known:
            self._complete[path, size] -= 1
        return known

    def knows(self, path: str) -> bool:
        """Whether an earlier attempt completed a file at this path."""
        return path in self._paths

    def add(self, entry: Entry) -> None:
        """Record a complete file; may be called from any thread."""
        with self._wanted:
            self._new.append(entry)
            self._num_files += 1
            if entry.sha256 is not None:
                self.digests[entry.path] = entry.sha256

    def forget(self, path: str) -> None:
        """Record that a file is about to be replaced, and so is no longer complete."""
        with self._wanted:
            self._new.append(Entry(path, REPLACED, None))
            self.digests.pop(path, None)
        self._sync()

    def _sync_periodically(self) -> None:
        while not self._ended and self._failure is None:
            with self._wanted:
                self._wanted.wait_for(lambda: self._ended, timeout=SYNC_SECONDS)
            try:
                self._sync()
            except OSError as error:
                self._failure = error

    def _sync(self) -> None:
        with self._syncing:
            with self._wanted:
                complete, self._new = self._new, []
            if complete:
                _force_to_disk(self._folder)
                self._file.writelines(f"{json.dumps(entry)}\n" for entry in complete)
                self._file.flush()
                os.fsync(self._file.fileno())


def _read(path: Path, source: str) -> list[Entry] | None:
    """Read a record; None if it is missing, or about another source."""
    lines: list[str] = []
    with suppress(OSError, UnicodeDecodeError):
        lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0] != json.dumps({"source": source}):
        return None
    entries = []
    for line in lines[1:]:
        with suppress(ValueError, TypeError):  # half a line, of the crash
            file, size, span, *digests = json.loads(line)
            entries.append(Entry(file, size, tuple(span) if span else None, *digests))
    return entries


def _still_there(folder: Path, entries: list[Entry]) -> list[Entry]:
    """Drop the entries whose file is not as the last entry about it says."""
    there = {}
    for entry in {entry.path: entry for entry in entries}.values():
        with suppress(OSError):
            there[entry.path] = (folder / entry.path).lstat().st_size == entry.size
    return [entry for entry in entries if there.get(entry.path)]


def _force_to_disk(folder: Path) -> None:
    """Everything that waits for this file system; `syncfs` where there is one (Linux)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
