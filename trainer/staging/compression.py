"""Which compression a stream has, told by its first bytes, and the same stream without it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from typing import Any, cast

from trainer.staging.stream import ReadStream, Stream

LONGEST_MAGIC = 6


def decompressed(stream: Stream) -> Stream:
    """The stream itself if it is not compressed."""
    start, source = stream.peek(LONGEST_MAGIC), cast(Any, stream)
    if start.startswith(b"\x1f\x8b"):
        return ReadStream(gzip.GzipFile(fileobj=source), errors=(EOFError, OSError, zlib.error))
    if start.startswith(b"BZh"):
        return ReadStream(bz2.BZ2File(source), errors=(EOFError, OSError))
    if start.startswith(b"\xfd7zXZ\0"):
        return ReadStream(lzma.LZMAFile(source), errors=(EOFError, lzma.LZMAError))
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        reader = zstandard.ZstdDecompressor().stream_reader(source, read_size=2**20, read_across_frames=True)
        return ReadStream(reader, errors=(zstandard.ZstdError,))
    return stream
