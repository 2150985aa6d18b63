"""The checksum that S3 keeps of an object, compared with the bytes that arrive."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from awscrt import checksums
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.wording import wording
from trainer.runtime.errors import DatasetInvalid
from trainer.staging.stored_checksum import StoredChecksum, Verification, find

DIGESTS: Mapping[str, Callable[[bytes], bytes]] = {
    "CRC64NVME": lambda data: checksums.crc64nvme(data).to_bytes(8, "big"),
    "CRC32C": lambda data: checksums.crc32c(data).to_bytes(4, "big"),
    "CRC32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "SHA256": lambda data: hashlib.sha256(data).digest(),
    "SHA1": lambda data: hashlib.sha1(data).digest(),
}
CRCS = ("CRC64NVME", "CRC32C", "CRC32")


def stored(algorithm: str, data: bytes, *, part_bytes: int | None = None) -> StoredChecksum:
    """What S3 would keep."""
    digest = DIGESTS[algorithm]
    of = data
    if part_bytes is not None:
        of = b"".join(digest(data[at : at + part_bytes]) for at in range(0, len(data), part_bytes))
    return StoredChecksum(algorithm=algorithm, value=base64.b64encode(digest(of)).decode(), part_bytes=part_bytes)


def pieces(data: bytes, sizes: list[int]) -> list[tuple[int, bytes]]:
    found, at = [], 0
    for size in sizes:
        found.append((at, data[at : at + size]))
        at = min(len(data), at + size)
    return [*found, (at, data[at:])]


@given(
    algorithm=st.sampled_from(list(DIGESTS)),
    data=st.binary(min_size=1, max_size=200),
    sizes=st.lists(st.integers(1, 50), max_size=5),
    part_bytes=st.none() | st.integers(1, 80),
    flipped=st.none() | st.integers(0, 1599),
)
def test_bytes_are_accepted_exactly_if_no_bit_differs(
    algorithm: str, data: bytes, sizes: list[int], part_bytes: int | None, flipped: int | None
) -> None:
    verification = Verification(stored(algorithm, data, part_bytes=part_bytes))
    arrived = bytearray(data)
    if flipped is not None:
        arrived[flipped // 8 % len(data)] ^= 1 << flipped % 8
    for at, piece in pieces(bytes(arrived), sizes):
        verification.update(at, piece)
    if flipped is None:
        verification.require("s3://b/k.tar")
    else:
        with pytest.raises(DatasetInvalid, match=rf"k\.tar .*{algorithm} .*S3 .*damaged"):
            verification.require("s3://b/k.tar")


@given(
    algorithm=st.sampled_from(CRCS),
    data=st.binary(min_size=3, max_size=200),
    places=st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200)),
    is_damaged=st.booleans(),
)
def test_what_an_earlier_attempt_read_counts_with_its_crc(
    algorithm: str, data: bytes, places: tuple[int, int, int], is_damaged: bool
) -> None:
    start, middle, end = sorted(place % len(data) for place in places)  # an archive's end is always read
    first = Verification(stored(algorithm, data))
    first.update(0, data[:start])
    first.cut()
    known: dict[int, tuple[int, int]] = {}
    for begin, stop in ((start, middle), (middle, end)):
        piece = bytearray(data[begin:stop])
        if is_damaged and piece:
            piece[0] ^= 1
        first.update(begin, bytes(piece))
        crc = first.cut()
        assert crc is not None
        if stop > begin:
            known[begin] = (stop, crc)
    again = Verification(stored(algorithm, data), known=known)
    again.update(0, data[:start])
    again.update(end, data[end:])
    if is_damaged and known:
        with pytest.raises(DatasetInvalid):
            again.require("k")
    else:
        again.require("k")


def test_damaged_bytes_are_named_with_both_checksums() -> None:
    verification = Verification(StoredChecksum(algorithm="CRC32", value="AAAAAA=="))
    verification.update(0, b"a")
    with pytest.raises(DatasetInvalid) as refused:
        verification.require("s3://b/k.tar")
    assert str(refused.value) == (wording("stored_checksum.damaged_bytes_are_named_with_both_checksums", "k.tar"))


@pytest.mark.parametrize("algorithm", list(DIGESTS))
@pytest.mark.parametrize("part_bytes", [None, 4])
def test_only_the_crc_of_a_whole_object_is_put_together_from_pieces(algorithm: str, part_bytes: int | None) -> None:
    kept = stored(algorithm, b"0123456789", part_bytes=part_bytes)
    assert kept.has_spans == (algorithm in CRCS and part_bytes is None)
    verification = Verification(kept)
    verification.update(0, b"01234")
    first = verification.cut()
    verification.update(5, b"56789")
    second = verification.cut()
    if kept.has_spans:
        whole = [int.from_bytes(DIGESTS[algorithm](piece), "big") for piece in (b"01234", b"56789")]
        assert [first, second] == whole
    else:
        assert (first, second) == (None, None)
    verification.require("k")


class Head:
    """S3's answers to HeadObject."""

    def __init__(self, whole: Mapping[str, Any], parts: Mapping[int, int] | None = None) -> None:
        self._whole, self._parts = whole, parts or {}

    def head_object(self, *, PartNumber: int | None = None, **given: Any) -> Mapping[str, Any]:
        if PartNumber is None:
            assert given == {"Bucket": "b", "Key": "k", "IfMatch": '"e"', "ChecksumMode": "ENABLED"}
            return self._whole
        if PartNumber not in self._parts:
            raise ClientError({"Error": {"Code": "416"}}, "HeadObject")
        return {"ContentLength": self._parts[PartNumber], "PartsCount": len(self._parts)}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (Head({}), None),
        (Head({"ChecksumXXHASH128": "a", "ChecksumType": "FULL_OBJECT"}), None),
        (
            Head({"ChecksumCRC64NVME": "AAAAAAAAAAA=", "ChecksumType": "FULL_OBJECT"}),
            StoredChecksum(algorithm="CRC64NVME", value="AAAAAAAAAAA="),
        ),
        (
            Head({"ChecksumCRC32": "AAAAAA==-3", "ChecksumType": "COMPOSITE"}, {1: 40, 2: 40, 3: 20}),
            StoredChecksum(algorithm="CRC32", value="AAAAAA==", part_bytes=40),
        ),
        (
            Head({"ChecksumSHA256": "AAAA-1", "ChecksumType": "COMPOSITE"}, {1: 100}),
            StoredChecksum(algorithm="SHA256", value="AAAA", part_bytes=100),
        ),
        (
            Head({"ChecksumCRC32C": "AAAAAA==-2"}, {1: 50, 2: 50}),
            StoredChecksum(algorithm="CRC32C", value="AAAAAA==", part_bytes=50),
        ),
        (Head({"ChecksumCRC32": "AAAAAA==-3", "ChecksumType": "COMPOSITE"}, {1: 30, 2: 50, 3: 20}), None),
        (Head({"ChecksumCRC32": "AAAAAA==-2", "ChecksumType": "COMPOSITE"}, {1: 40, 2: 60}), None),
        (Head({"ChecksumCRC32": "AAAAAA==-2", "ChecksumType": "COMPOSITE"}, {1: 100, 2: 0}), None),
        (Head({"ChecksumCRC32": "AAAAAA==-3", "ChecksumType": "COMPOSITE"}), None),
        (Head({"ChecksumCRC32": "AAAAAA==", "ChecksumType": "COMPOSITE"}, {1: 100}), None),
    ],
)
def test_what_s3_keeps_is_read_from_its_head(head: Any, expected: StoredChecksum | None) -> None:
    assert find(head, bucket="b", key="k", size=100, etag='"e"') == expected
