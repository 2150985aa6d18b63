"""Detects a stream's compression by its first bytes, and reads the stream without it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from typing import Any, cast

from trainer.staging.stream import ReadStream, Stream

GZIP, BZIP2, XZ, ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"

LONGEST_HEADER = 18
"""Bytes of the longest header that is looked into, of a frame of zstd (RFC 8878)."""

END_BYTES = 2**16
"""Last bytes of an archive that are searched for its size without compression. The index of an xz stream takes some
eight bytes a block, and blocks are 24 MiB where several threads compress with the default settings."""

XZ_WITHOUT_CHECK = b"\0\0"
"""Flags of an xz stream without a checksum (xz file format, 2.1.1.2), behind its first six bytes."""


def decompressed(stream: Stream, *, most: int | None = None) -> Stream:
    """The stream itself if it is not compressed.

    Args:
        stream: The stream.
        most: Most bytes that it may have without the compression; reading more raises DatasetInvalid.
    """
    start, source = stream.peek(LONGEST_HEADER), cast(Any, stream)
    if start.startswith(GZIP):
        return ReadStream(gzip.GzipFile(fileobj=source), errors=(EOFError, OSError, zlib.error), most=most)
    if start.startswith(BZIP2):
        return ReadStream(bz2.BZ2File(source), errors=(EOFError, OSError), most=most)
    if start.startswith(XZ):
        return ReadStream(lzma.LZMAFile(source), errors=(EOFError, lzma.LZMAError), most=most)
    if start.startswith(ZSTD):
        import zstandard

        reader = zstandard.ZstdDecompressor().stream_reader(source, read_size=2**20, read_across_frames=True)
        return ReadStream(reader, errors=(zstandard.ZstdError,), most=most)
    return stream


def own_checksum(start: bytes) -> str | None:
    """The compression whose own checksum covers a stream, by its first bytes; None without one."""
    if start.startswith(GZIP):
        return "gzip"
    if start.startswith(BZIP2):
        return "bzip2"
    if start.startswith(XZ):
        return None if start[len(XZ) :].startswith(XZ_WITHOUT_CHECK) else "xz"
    if start.startswith(ZSTD):
        import zstandard

        try:
            return "zstd" if zstandard.get_frame_parameters(start).has_checksum else None
        except zstandard.ZstdError:
            return None
    return None


def tells_its_size_at_its_end(start: bytes) -> bool:
    """Whether the end of a stream, and not its start, contains the size without compression."""
    return start.startswith((GZIP, XZ))


def unpacked_bytes(start: bytes, end: bytes) -> int | None:
    """Minimum size of a stream without its compression, from its first or last bytes; None if unknown.

    It is larger if several frames, members or streams follow one another: each contains its own size. gzip keeps the
    size modulo 4 GiB (RFC 1952, 2.3.1), and bzip2 does not keep it.

    Args:
        start: Its first bytes.
        end: Its last bytes, where `tells_its_size_at_its_end`.
    """
    if start.startswith(GZIP):
        return int.from_bytes(end[-4:], "little") or None
    if start.startswith(XZ):
        return _in_the_index(end)
    if not start.startswith(ZSTD):
        return None
    import zstandard

    try:
        size = zstandard.frame_content_size(start)
    except zstandard.ZstdError:
        return None
    return size if size > 0 else None


def _in_the_index(end: bytes) -> int | None:
    """Sum of the sizes of the blocks in the index of an xz stream; None if the index is not whole.

    Source: xz file format, 2.1.2 and 4.
    """
    stream = end.rstrip(b"\0")  # padding may follow
    index_size = (int.from_bytes(stream[-8:-4], "little") + 1) * 4
    index = stream[-12 - index_size : -12]
    if stream[-2:] != b"YZ" or len(index) != index_size:
        return None
    records, checksum = index[:-4], index[-4:]
    if records[:1] != b"\0" or zlib.crc32(records) != int.from_bytes(checksum, "little"):
        return None
    (num_blocks, *numbers) = _numbers(records[1:]) or [0]
    return sum(numbers[1 : 2 * num_blocks : 2]) or None


def _numbers(encoded: bytes) -> list[int]:
    """Numbers of seven bits a byte, the lowest first; the highest bit of each number's last byte is 0 (format, 1.2)."""
    numbers, number, shift = [], 0, 0
    for byte in encoded:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number, shift = 0, 0
    return numbers
