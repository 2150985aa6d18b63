"""Which compression a stream has, told by its first bytes, and the same stream without it."""

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


def unpacked_bytes(start: bytes) -> int | None:
    """Size of a stream without its compression, as far as its first bytes say it; None if they do not."""
    if not start.startswith(ZSTD):
        return None
    import zstandard

    try:
        size = zstandard.frame_content_size(start)
    except zstandard.ZstdError:
        return None
    return size if size > 0 else None
