"""Writes files to the disk with a few threads, past the page cache where the file system allows it.

Other pods read what a staging pod writes, so a copy in its own memory is of no use and is lost with its node.
So large files are written with O_DIRECT from a few buffers that are used again and again; they are also what bounds
the memory. Small files go through the page cache, and `CompletedFiles` makes sure that they are on the disk.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import queue
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.runtime.errors import DatasetInvalid, StorageFailed, TrainerError
from trainer.runtime.workers import Worker
from trainer.staging import manifest
from trainer.staging.completed_files import CompletedFiles, Entry

BUFFER_BYTES = 4 * 2**20
NUM_BUFFERS = 6
"""Together with the bytes in flight, the buffers use far less than the 256 MiB that a staging pod may use."""

THREADS = 8
"""A network file system answers in milliseconds, so several threads wait at once."""

SMALL_BYTES = 256 * 2**10
"""Largest file that is written in one call; it waits in memory until then."""

WAITING_WRITES = 2 * THREADS
"""Writes that may wait for a thread. With those that run and the next one, 25 small files, and so 6.25 MiB, are in
memory at most, however slow the disk is."""

BLOCK = 4096
"""O_DIRECT needs addresses, offsets and lengths in whole blocks of the device; no device has larger blocks."""


OF_THE_NAME = frozenset(
    {errno.EEXIST, errno.EILSEQ, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOTEMPTY}
)
"""Errors of a path, whatever the disk: a file where a folder is or the other way round, a name too long or not of the
file system's characters, links in a circle."""

LONGEST_QUOTED = 200
"""Characters of a path that a message quotes."""


def is_of_the_name(error: OSError) -> bool:
    """Whether a path of the data set is at fault, and no disk could hold it."""
    return error.errno in OF_THE_NAME


class Writer:
    """Writes files below a folder and records which are complete."""

    def __init__(
        self,
        folder: Path,
        *,
        completed: CompletedFiles,
        checksums: Mapping[str, str] | None = None,
        digested: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        """
        Args:
            folder: The folder of the data set; every path is relative to it.
            completed: Record of the files that are complete.
            checksums: SHA-256 of every file; None not to check them.
            digested: Whether the SHA-256 of a path is recorded.
        """
        self.folder = folder
        self.in_order = False
        """Whether each file must be complete before the next is begun."""
        self._completed = completed
        self._checksums = checksums
        self._digested = digested
        self._buffers: queue.SimpleQueue[mmap.mmap] = queue.SimpleQueue()
        self._num_buffers = 0
        self._jobs: queue.Queue[tuple[Callable[[], None], Entry] | None] = queue.Queue(WAITING_WRITES)
        self._failure: tuple[BaseException, Entry | None] | None = None
        """The first failure and its file."""
        self._begun: set[str] = set()
        self._threads = [Worker(self._work, name="staging-writer") for _ in range(THREADS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self._fail(StorageFailed("Writing was given up."), None)  # else the next file begins
        for _thread in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        if kind is None:
            self._require_no_failure()

    @contextmanager
    def file(self, entry: Entry, *, mode: int | None = None, mtime: float | None = None) -> Iterator[_File]:
        """Open a file to write; it is complete some time after the block ends.

        Raises:
            DatasetInvalid: If its bytes are not those of the manifest, or its path cannot be a file's.
            StorageFailed: If this or an earlier file could not be written.
        """
        self._require_no_failure()
        again = entry.path in self._begun or self._completed.knows(entry.path)
        if self.in_order or again:
            self.drain()
        if again:  # an archive may hold a path twice; the last member counts
            self._completed.forget(entry.path)
        self._begun.add(entry.path)
        digest = hashlib.sha256() if self._checksums is not None or self._digested(entry.path) else None
        try:
            file = _File(self, entry, digest, mode=0o644 if mode is None else mode, mtime=mtime)
        except OSError as error:
            raise self._refused(error, entry) from error
        try:
            yield file
            if digest is not None:
                file.note(sha256=digest.hexdigest())
                if self._checksums is not None:
                    manifest.require(self._checksums, entry.path, digest.hexdigest())
        except BaseException:
            file.abandon()
            raise
        file.end()

    def drain(self) -> None:
        """Wait until all files are written."""
        self._jobs.join()
        self._require_no_failure()

    def do(self, job: Callable[[], None], entry: Entry) -> None:
        """Run a job of a file in a thread as soon as one is free."""
        self._jobs.put((job, entry))

    def buffer(self) -> mmap.mmap:
        """Wait for a free buffer."""
        if self._num_buffers < NUM_BUFFERS and self._buffers.empty():
            self._num_buffers += 1
            return mmap.mmap(-1, BUFFER_BYTES)
        return self._buffers.get()

    def return_buffer(self, buffer: mmap.mmap) -> None:
        """Return a buffer whose bytes are written."""
        self._buffers.put(buffer)

    def complete(self, entry: Entry) -> None:
        """Record that a file is complete."""
        self._completed.add(entry)

    def _work(self) -> None:
        """Run jobs until the end. No exception ends the thread: the reader may wait for room in the queue."""
        while (found := self._jobs.get()) is not None:
            job, entry = found
            try:
                job()
            except BaseException as error:  # noqa: BLE001 (raised again by whoever waits for the files)
                self._fail(error, entry)
            finally:
                self._jobs.task_done()
        self._jobs.task_done()

    def _fail(self, error: BaseException, entry: Entry | None) -> None:
        self._failure = self._failure or (error, entry)
        if not isinstance(error, OSError | TrainerError):
            traceback.print_exception(error)

    @property
    def failed(self) -> bool:
        """Whether the write failed, so that waiting files need not be written."""
        return self._failure is not None

    def _require_no_failure(self) -> None:
        if self._failure is None:
            return
        error, entry = self._failure
        if isinstance(error, TrainerError) or entry is None:
            raise error
        if isinstance(error, OSError):
            raise self._refused(error, entry)
        raise StorageFailed(
            f"The file {entry.path[:LONGEST_QUOTED]!r} of the data set could not be written "
            f"({type(error).__name__}: {error}); start again, and report the error if it comes back."
        ) from error

    def _refused(self, error: OSError, entry: Entry) -> TrainerError:
        failed: TrainerError
        if is_of_the_name(error):
            failed = DatasetInvalid(
                f"The data set holds {entry.path[:LONGEST_QUOTED]!r}, which cannot be a file beside its others "
                f"({error.strerror}); rename or remove it in the data set."
            )
        else:
            failed = StorageFailed(
                f"The data set cannot be written to {self.folder} ({error.strerror or error}); "
                "make room there, or give a --destination that can be written."
            )
        failed.__cause__ = error
        return failed


class _File:
    """A file that is being written: small ones at once, large ones buffer by buffer."""

    def __init__(
        self, writer: Writer, entry: Entry, digest: hashlib._Hash | None, *, mode: int, mtime: float | None
    ) -> None:
        self._writer = writer
        self._entry = entry
        self._digest = digest
        self._mode = mode
        self._mtime = mtime
        self._path = writer.folder / entry.path
        self._parts: list[bytes] = []
        self._buffer: mmap.mmap | None = None
        self._filled = 0
        self._offset = 0
        self._lock = threading.Lock()
        self._unwritten = 1  # the end counts as one
        self._abandoned = False
        self._descriptor = -1
        if entry.size > SMALL_BYTES:
            self._descriptor, self._direct = self._open()
            os.ftruncate(self._descriptor, entry.size)

    def write(self, data: memoryview) -> None:
        """Write the next bytes; they are copied once."""
        if self._digest is not None:
            self._digest.update(data)
        if self._descriptor < 0:
            self._parts.append(bytes(data))
            return
        while data:
            if self._buffer is None:
                self._buffer = self._writer.buffer()
            part = data[: BUFFER_BYTES - self._filled]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == BUFFER_BYTES:
                self._flush(self._buffer)

    def note(self, **checksums: int | str | None) -> None:
        """Add checksums to the entry of the file, before it ends."""
        self._entry = self._entry._replace(**checksums)  # type: ignore[arg-type]

    def end(self) -> None:
        """Complete the file: all of its bytes were written."""
        if self._descriptor < 0:
            self._writer.do(self._write_small, self._entry)
            return
        if self._buffer is not None:
            self._flush(self._buffer)
        self._one_less()

    def abandon(self) -> None:
        """Drop the file: some of its bytes are missing or wrong."""
        self._abandoned = True
        if self._buffer is not None:
            self._writer.return_buffer(self._buffer)
        if self._descriptor >= 0:
            self._one_less()

    def _flush(self, buffer: mmap.mmap) -> None:
        length, offset = self._filled, self._offset
        self._buffer, self._filled, self._offset = None, 0, offset + length
        with self._lock:
            self._unwritten += 1
        self._writer.do(lambda: self._write_buffer(buffer, length, offset), self._entry)

    def _write_buffer(self, buffer: mmap.mmap, length: int, offset: int) -> None:
        try:
            if not self._writer.failed:
                self._write_through(memoryview(buffer), length, offset)
        except BaseException:
            self._abandoned = True
            raise
        finally:
            self._writer.return_buffer(buffer)
            self._one_less()

    def _write_through(self, buffer: memoryview, length: int, offset: int) -> None:
        if self._direct:
            try:
                _write_at(
                    self._descriptor, buffer[: -(-length // BLOCK) * BLOCK], offset
                )  # truncated to its size at the end
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            self._direct = False  # a file system that refuses O_DIRECT only at the first write
        _write_at(self._descriptor, buffer[:length], offset)

    def _one_less(self) -> None:
        with self._lock:
            self._unwritten -= 1
            if self._unwritten:
                return
        try:
            if not self._abandoned and not self._writer.failed:
                os.ftruncate(self._descriptor, self._entry.size)
                self._dress(self._descriptor)
        finally:
            os.close(self._descriptor)
        self._tell()

    def _write_small(self) -> None:
        if self._writer.failed:
            return
        descriptor = self._create(0)
        try:
            for part in self._parts:
                _write_at(descriptor, memoryview(part), self._offset)
                self._offset += len(part)
            self._dress(descriptor)
        finally:
            os.close(descriptor)
        self._tell()

    def _tell(self) -> None:
        if not self._abandoned and not self._writer.failed:
            self._writer.complete(self._entry)

    def _dress(self, descriptor: int) -> None:
        os.fchmod(descriptor, self._mode)
        if self._mtime is not None:
            with suppress(OverflowError):  # a time outside of the file system's range
                os.utime(descriptor, (self._mtime, self._mtime))

    def _open(self) -> tuple[int, bool]:
        direct: int = getattr(os, "O_DIRECT", 0)
        with suppress(OSError):
            return self._create(direct), bool(direct)
        return self._create(0), False

    def _create(self, flags: int) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)  # never write through a link, nor into a file that another process has open
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600)


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
