"""What an archive tells of its size without compression, before it is read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trainer.staging import compression
from trainer.staging.compression import END_BYTES, LONGEST_HEADER

FIVE_BLOCKS = bytes.fromhex(
    "000527e80727e80727e80727e80727e807000000bac3acf2"  # index
    "09f462e6050000000004595a"  # footer
)
"""End of `head -c 5000 /dev/zero | xz --block-size=1000`."""

TELLING: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def told(archive: bytes) -> int | None:
    start, end = archive[:LONGEST_HEADER], b""
    if compression.tells_its_size_at_its_end(start):
        end = archive[-END_BYTES:]
    return compression.unpacked_bytes(start, end)


@pytest.mark.parametrize("compress", TELLING.values(), ids=TELLING)
@pytest.mark.parametrize("size", [1, 127, 128, 70_000, 3 * 2**20])
def test_the_size_without_compression_is_told(compress: Callable[[bytes], bytes], size: int) -> None:
    assert told(compress(random.Random(0).randbytes(size))) == size


def test_bzip2_and_plain_archives_tell_nothing() -> None:
    assert told(bz2.compress(b"text")) is None
    assert told(bytes(10_240)) is None


@pytest.mark.parametrize("compress", TELLING.values(), ids=TELLING)
def test_of_parts_that_follow_one_another_less_is_told_than_there_is_and_never_more(
    compress: Callable[[bytes], bytes],
) -> None:
    size = told(compress(bytes(5000)) + compress(bytes(7000)))
    assert size is not None
    assert 5000 <= size <= 12_000


def test_all_blocks_of_an_xz_archive_count_and_padding_does_not_matter() -> None:
    start = compression.XZ
    assert compression.unpacked_bytes(start, FIVE_BLOCKS) == 5000
    assert compression.unpacked_bytes(start, b"content" + FIVE_BLOCKS + bytes(8)) == 5000


def test_a_damaged_index_tells_nothing_wrong() -> None:
    for position in range(len(FIVE_BLOCKS)):
        for bit in range(8):
            damaged = bytearray(FIVE_BLOCKS)
            damaged[position] ^= 1 << bit
            assert compression.unpacked_bytes(compression.XZ, bytes(damaged)) in (None, 5000), (position, bit)
    for length in range(len(FIVE_BLOCKS)):
        assert compression.unpacked_bytes(compression.XZ, FIVE_BLOCKS[-length:] if length else b"") is None, length


VOUCHING = {
    "gzip": (gzip.compress(b"text"), "gzip"),
    "bzip2": (bz2.compress(b"text"), "bzip2"),
    "xz": (lzma.compress(b"text"), "xz"),
    "xz with a CRC": (lzma.compress(b"text", check=lzma.CHECK_CRC32), "xz"),
    "xz without": (lzma.compress(b"text", check=lzma.CHECK_NONE), None),
    "zstd with": (zstandard.ZstdCompressor(write_checksum=True).compress(b"text"), "zstd"),
    "zstd without": (zstandard.ZstdCompressor().compress(b"text"), None),
    "half a header": (compression.ZSTD, None),
    "tar": (bytes(512), None),
    "nothing": (b"", None),
}
"""Archives, and the compression whose checksum covers them."""


@pytest.mark.parametrize(("archive", "name"), VOUCHING.values(), ids=VOUCHING)
def test_only_a_compression_with_a_checksum_of_its_own_vouches_for_an_archive(archive: bytes, name: str | None) -> None:
    assert compression.own_checksum(archive[:LONGEST_HEADER]) == name


def test_a_zstd_archive_that_does_not_tell_its_size_has_none() -> None:
    assert told(zstandard.ZstdCompressor(write_content_size=False).compress(b"text")) is None
    assert told(zstandard.ZstdCompressor().compress(b"")) is None
    assert told(compression.ZSTD) is None


@pytest.mark.parametrize(("name", "at_its_end"), [("gzip", True), ("xz", True), ("zstd", False)])
def test_gzip_and_xz_tell_their_size_at_their_end(name: str, at_its_end: bool) -> None:
    assert compression.tells_its_size_at_its_end(TELLING[name](b"")) is at_its_end


@given(
    st.sampled_from([compression.GZIP, compression.XZ, compression.ZSTD, compression.BZIP2]), st.binary(), st.binary()
)
def test_whatever_the_bytes_are_a_size_is_told_or_none(magic: bytes, more: bytes, end: bytes) -> None:
    size = compression.unpacked_bytes((magic + more)[:LONGEST_HEADER], end + FIVE_BLOCKS[-12:])
    assert size is None or size > 0
