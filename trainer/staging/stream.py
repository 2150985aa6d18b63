"""Bytes that come in order, handed on in pieces that nobody copies."""

from __future__ import annotations

import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, Self

from trainer.staging.source import RemoteFile
from trainer.staging.transfer import Range, Transfer, ranges_of

LONGEST_READ = 16 * 2**20
"""Of a header: what is larger is damaged, or made to fill the memory."""


class Stream(ABC):
    """A stream that goes forward only; errors are those of `tarfile`, which reads headers from it."""

    def __init__(self) -> None:
        self._chunk = memoryview(b"")
        self._position = 0

    @abstractmethod
    def _more(self) -> tuple[int, memoryview] | None:
        """The next bytes and where they stand; None at the end."""

    def tell(self) -> int:
        """Where the next byte stands."""
        return self._position

    def peek(self, size: int) -> bytes:
        """The next few bytes, which stay where they are."""
        self._load()
        return bytes(self._chunk[:size])

    def read(self, size: int = -1, /) -> bytes:
        """As many bytes, fewer at the end.

        Raises:
            ReadError: If more are asked for than any header has.
        """
        if not 0 <= size <= LONGEST_READ:
            raise tarfile.ReadError(f"it asks for {size} bytes of header")
        parts = []
        while size and self._load():
            parts.append(self._take(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def pieces(self, size: int) -> Iterator[memoryview]:
        """The next bytes, without a copy.

        Raises:
            ReadError: If there are fewer.
        """
        while size:
            if not self._load():
                raise tarfile.ReadError("unexpected end of data")
            piece = self._take(size)
            size -= len(piece)
            yield piece

    def skip_to(self, position: int) -> None:
        """Leave bytes out, up to this one.

        Raises:
            ReadError: If the stream ends before.
        """
        while self._position < position:
            if not self._load():
                raise tarfile.ReadError("unexpected end of data")
            self._take(position - self._position)

    def drain(self) -> None:
        """Read what is left, and forget it."""
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
        piece = self._chunk[: max(size, 0)]
        self._chunk = self._chunk[len(piece) :]
        self._position += len(piece)
        return piece


class RemoteStream(Stream):
    """A remote file, except for stretches of it that are not needed."""

    def __init__(
        self,
        transfer: Transfer,
        file: RemoteFile,
        *,
        without: Mapping[int, int],
        arrived: Callable[[bytes], None],
    ) -> None:
        """
        Args:
            transfer: Reads it.
            file: Which.
            without: Where such a stretch begins, and where it ends: the reader skips from one to the other.
            arrived: Sees all bytes that are read, in order.
        """
        super().__init__()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._answers.close()  # stops reading ahead


class Readable(Protocol):
    """Whatever has bytes to read."""

    def read(self, size: int = -1, /) -> bytes: ...


class ReadStream(Stream):
    """The bytes of something that can be read: a decompressor, a file."""

    CHUNK = 2**20

    def __init__(self, source: Readable, *, errors: tuple[type[Exception], ...] = ()) -> None:
        """
        Args:
            source: Where they come from.
            errors: What it raises when they are damaged.
        """
        super().__init__()
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
        return at, memoryview(data)


def _ranges(file: RemoteFile, without: Mapping[int, int]) -> Iterator[Range]:
    """Of what is needed. Stretches that touch are left out as one."""
    position = 0
    for start in sorted(without):
        yield from ranges_of(file, position, max(position, start))
        position = max(position, without[start])
    yield from ranges_of(file, position)
