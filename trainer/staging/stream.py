"""Streams of bytes that are read forward, in pieces that are not copied."""

from __future__ import annotations

import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, Self

from trainer.runtime.errors import DatasetInvalid
from trainer.staging.source import RemoteFile
from trainer.staging.stored_checksum import Verification
from trainer.staging.transfer import Range, Transfer, cut_ranges

LONGEST_READ = 16 * 2**20
"""Largest header that is read; a larger one is damaged, or made to fill the memory."""


class Stream(ABC):
    """A stream that goes forward only; errors are those of `tarfile`, which reads headers from it."""

    def __init__(self) -> None:
        self._chunk = memoryview(b"")
        self._position = 0

    @abstractmethod
    def _more(self) -> tuple[int, memoryview] | None:
        """The next bytes and their offset; None at the end."""

    def tell(self) -> int:
        """Offset of the next byte."""
        return self._position

    def peek(self, size: int) -> bytes:
        """The next few bytes, without moving forward."""
        self._load()
        return bytes(self._chunk[:size])

    def read(self, size: int = -1, /) -> bytes:
        """Read this many bytes, or fewer at the end.

        Raises:
            ReadError: If more bytes are asked for than a header may have.
        """
        if not 0 <= size <= LONGEST_READ:
            raise tarfile.ReadError(f"it asks for {size} bytes of header")
        parts = []
        while size and self._load():
            parts.append(self._take(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Iterate over the next bytes, without a copy.

        Raises:
            ReadError: If the stream ends before.
        """
        while size:
            if not self._load():
                raise tarfile.ReadError("unexpected end of data")
            piece = self._take(size)
            size -= len(piece)
            yield piece

    def skip_to(self, position: int) -> None:
        """Skip the bytes before this offset.

        Raises:
            ReadError: If the stream ends before.
        """
        while self._position < position:
            if not self._load():
                raise tarfile.ReadError("unexpected end of data")
            self._take(position - self._position)

    def drain(self) -> None:
        """Read the rest and drop it."""
        while self._load():
            self._take(len(self._chunk))

    def _load(self) -> bool:
        while not self._chunk:
            found = self._more()
            if found is None:
                return False
            self._position, self._chunk = found
        return True

    def _take(self, size: int) -> memoryview:
        piece = self._chunk[:size]
        self._chunk = self._chunk[len(piece) :]
        self._taken(self._position, piece)
        self._position += len(piece)
        return piece

    def _taken(self, position: int, piece: memoryview) -> None:
        """Called with all bytes that leave the stream, in order."""
        return

    def cut(self) -> int | None:
        """CRC of the bytes that have left the stream since the last cut; None where none is computed."""
        return None


class RemoteStream(Stream):
    """A remote file, without the stretches that are not needed."""

    def __init__(
        self,
        transfer: Transfer,
        file: RemoteFile,
        *,
        without: Mapping[int, int],
        arrived: Callable[[bytes], None],
        verification: Verification | None = None,
    ) -> None:
        """
        Args:
            transfer: Reads the file.
            file: The remote file.
            without: End of each stretch to leave out, by its start; the reader skips from start to end.
            arrived: Called with all bytes that are read, in order.
            verification: Computes the checksum that S3 keeps of the file; None if S3 does not keep one.
        """
        super().__init__()
        self._verification = verification
        self._arrived = arrived
        self._answers = transfer.fetch(_ranges(file, without))
        self._ready: list[tuple[int, bytes]] = []

    def _more(self) -> tuple[int, memoryview] | None:
        if not self._ready:
            found = next(self._answers, None)
            if found is None:
                return None
            at = found[0].start
            for chunk in found[1]:
                self._ready.append((at, chunk))
                at += len(chunk)
        at, chunk = self._ready.pop(0)
        self._arrived(chunk)
        return at, memoryview(chunk)

    def _taken(self, position: int, piece: memoryview) -> None:
        if self._verification is not None:
            self._verification.update(position, piece)

    def cut(self) -> int | None:
        """See `Stream`."""
        return None if self._verification is None else self._verification.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._answers.close()  # stops reading ahead


class Readable(Protocol):
    """An object whose bytes can be read."""

    def read(self, size: int = -1, /) -> bytes: ...


class ReadStream(Stream):
    """The bytes of a decompressor or of a file."""

    CHUNK = 2**20

    def __init__(self, source: Readable, *, errors: tuple[type[Exception], ...] = (), most: int | None = None) -> None:
        """
        Args:
            source: The object to read from.
            errors: The errors that it raises if its bytes are damaged.
            most: Most bytes that it may have; None for any number.
        """
        super().__init__()
        self._most = most
        self._source = source
        self._errors = errors
        self._end = 0

    def _more(self) -> tuple[int, memoryview] | None:
        try:
            data = self._source.read(self.CHUNK)
        except self._errors as error:
            raise tarfile.ReadError(str(error) or type(error).__name__) from error
        if not data:
            return None
        at, self._end = self._end, self._end + len(data)
        if self._most is not None and self._end > self._most:
            raise too_large(self._most)
        return at, memoryview(data)


def too_large(most: int) -> DatasetInvalid:
    """The error of an archive with more bytes than it may have without its compression."""
    return DatasetInvalid(
        f"The archive unpacks to more than {most:,} bytes; if that is meant, raise dataset.max_expansion "
        "(--max_expansion)."
    )


def _ranges(file: RemoteFile, without: Mapping[int, int]) -> Iterator[Range]:
    """Cut the needed parts of a file into ranges; stretches to leave out that touch are skipped as one."""
    position = 0
    for start in sorted(without):
        yield from cut_ranges(file, position, max(position, start))
        position = max(position, without[start])
    yield from cut_ranges(file, position)
