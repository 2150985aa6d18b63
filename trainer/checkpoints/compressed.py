"""Whether compressed streams and packed values go on to their end.

Formats that state the length of their blocks are walked from block to block, so nothing is decompressed. Others are
read up to a limit. Nothing here needs a library that an image may lack.
"""

from __future__ import annotations

import bz2
import mmap
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_READ = 256 * 1024 * 1024
"""Compressed bytes that are read, about 5 s; the end of a longer stream is not looked for."""

MAX_BLOCKS = 5_000_000
"""Blocks or values that are walked over, about 5 s."""

PIECE = 1 << 20


def gzip_is_whole(file: Path) -> bool | None:
    """Whether every member of a gzip file ends with its checksum."""
    return _stream_ends(file, lambda: zlib.decompressobj(wbits=31), (zlib.error,))


def bzip2_is_whole(file: Path) -> bool | None:
    """Whether every stream of a bzip2 file ends with its checksum."""
    return _stream_ends(file, bz2.BZ2Decompressor, (OSError, ValueError))


def _stream_ends(file: Path, new: Callable[[], Any], damage: tuple[type[Exception], ...]) -> bool | None:
    """Whether the last stream of a file ends; zeros behind it are padding. None beyond `MAX_READ`."""
    if file.stat().st_size > MAX_READ:
        return None
    reader: Any = None
    with file.open("rb") as content:
        while piece := content.read(PIECE):
            while piece:
                if reader is None and not piece.strip(b"\0"):
                    break
                reader = reader or new()
                try:
                    reader.decompress(piece)
                except damage:
                    return False
                piece = reader.unused_data if reader.eof else b""
                reader = None if reader.eof else reader
    return reader is None


def xz_is_whole(file: Path) -> bool:
    """Whether the last stream of an xz file has its footer, which points back to its index (tukaani.org/xz/
    xz-file-format.txt, 2.1.2)."""
    size = file.stat().st_size
    with file.open("rb") as content:
        content.seek(max(0, size - 12))
        footer = content.read(12)
    return size >= 32 and footer[10:] == b"YZ" and zlib.crc32(footer[4:10]) == int.from_bytes(footer[:4], "little")


def zstandard_is_whole(file: Path) -> bool | None:
    """Whether the last frame of a Zstandard file has its last block and its checksum (RFC 8878, 3.1.1)."""
    return _walked(file, _zstandard_frame)


def lz4_is_whole(file: Path) -> bool | None:
    """Whether the last frame of an LZ4 file has its end mark and its checksum (lz4_Frame_format.md)."""
    return _walked(file, _lz4_frame)


def msgpack_is_whole(file: Path) -> bool | None:
    """Whether the one map that a MessagePack file of Flax's is has its end (msgpack spec.md; flax/serialization.py)."""
    return _walked(file, _msgpack_map)


class _TooLong(Exception):
    """More blocks than are walked over."""


def _walked(file: Path, frame: Callable[[mmap.mmap, int], int]) -> bool | None:
    """Whether one frame ends where the file ends or another frame begins; None for other data."""
    if not file.stat().st_size:
        return False
    with file.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as view:
        place = 0
        try:
            while place < len(view):
                place = frame(view, place)
        except IndexError:
            return False
        except (ValueError, _TooLong):
            return None
        return place == len(view)


def _number(view: mmap.mmap, place: int, length: int, order: Any = "little") -> int:
    """A number.

    Raises:
        IndexError: If the file ends before it does.
    """
    if place + length > len(view):
        raise IndexError(place)
    return int.from_bytes(view[place : place + length], order)


def _zstandard_frame(view: mmap.mmap, place: int) -> int:
    """The end of a frame.

    Raises:
        IndexError: If the file ends before it does.
        ValueError: If another format follows.
    """
    magic = _number(view, place, 4)
    if magic & 0xFFFFFFF0 == 0x184D2A50:  # a frame to be skipped
        return place + 8 + _number(view, place + 4, 4)
    if magic != 0xFD2FB528:
        raise ValueError(place)
    flags = _number(view, place + 4, 1)
    is_single = bool(flags & 0x20)
    place += 5 + (not is_single) + (0, 1, 2, 4)[flags & 3] + ((1 if is_single else 0), 2, 4, 8)[flags >> 6]
    for _ in range(MAX_BLOCKS):
        header = _number(view, place, 3)
        place += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
        if header & 1:
            return place + 4 * bool(flags & 4)
    raise _TooLong


def _lz4_frame(view: mmap.mmap, place: int) -> int:
    """The end of a frame; the same errors."""
    magic = _number(view, place, 4)
    if magic & 0xFFFFFFF0 == 0x184D2A50:
        return place + 8 + _number(view, place + 4, 4)
    if magic != 0x184D2204:
        raise ValueError(place)
    flags = _number(view, place + 4, 1)
    place += 7 + 8 * bool(flags & 0x08) + 4 * bool(flags & 0x01)
    for _ in range(MAX_BLOCKS):
        size = _number(view, place, 4)
        place += 4
        if size == 0:
            return place + 4 * bool(flags & 0x04)
        place += (size & 0x7FFFFFFF) + 4 * bool(flags & 0x10)
    raise _TooLong


_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2}
_FIXED |= {0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
"""Bytes behind the first one of values that always have as many."""

_COUNTED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the length of binary data, extensions and texts."""

_NESTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the number of elements of arrays and maps, and values in an element."""


def _msgpack_map(view: mmap.mmap, place: int) -> int:
    """The end of a map with all that is in it; the same errors."""
    if place or not (0x80 <= view[0] <= 0x8F or view[0] in (0xDE, 0xDF)):
        raise ValueError(place)
    waiting = 1
    for _ in range(MAX_BLOCKS):
        if not waiting:
            return place
        kind = _number(view, place, 1)
        place, waiting = place + 1, waiting - 1
        if kind in _FIXED:
            place += _FIXED[kind]
        elif kind in _COUNTED:
            width = _COUNTED[kind]
            place += width + _number(view, place, width, "big") + (kind in (0xC7, 0xC8, 0xC9))
        elif kind in _NESTED:
            width, values = _NESTED[kind]
            waiting += values * _number(view, place, width, "big")
            place += width
        elif 0x80 <= kind <= 0x8F:
            waiting += 2 * (kind & 0x0F)
        elif 0x90 <= kind <= 0x9F:
            waiting += kind & 0x0F
        elif 0xA0 <= kind <= 0xBF:
            place += kind & 0x1F
        elif kind == 0xC1:
            raise ValueError(place)
    raise _TooLong
