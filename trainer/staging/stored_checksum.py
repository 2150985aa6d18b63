"""The checksum that S3 keeps of an object, and the same of the bytes that arrive.

S3 computes a checksum of every object: the one that the uploader chose, otherwise CRC64NVME (Amazon S3 user guide,
"Checking object integrity"). Ranged reads return none, so the whole object's is asked for by itself. Of an upload in
parts it may be a checksum of the parts' checksums ("composite"), which is the same only if the parts are.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trainer.runtime.errors import DatasetInvalid

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

CRC_BYTES = {"CRC64NVME": 8, "CRC32C": 4, "CRC32": 4}
HASHES = ("SHA256", "SHA1")
ALGORITHMS = (*CRC_BYTES, *HASHES)
"""Algorithms that can be computed here. S3 also knows others, whose checksums are not verified."""


# Decision 52: most flipped bits are read without an error, and the training gets worse.
@dataclass(frozen=True, kw_only=True)
class StoredChecksum:
    """The checksum that S3 keeps of an object."""

    algorithm: str
    value: str
    """The checksum in base64, as S3 answers; a composite one without the number of parts."""
    part_bytes: int | None = None
    """Size of the parts of an upload with a composite checksum; None for the checksum of the whole object."""

    @property
    def has_spans(self) -> bool:
        """Whether the checksum can be put together from those of the object's pieces."""
        return self.part_bytes is None and self.algorithm in CRC_BYTES


def find(client: S3Client, *, bucket: str, key: str, size: int, etag: str) -> StoredChecksum | None:
    """The checksum that S3 keeps of one version of an object; None without a checksum that can be compared."""
    from botocore.exceptions import BotoCoreError, ClientError

    def part_size(number: int) -> int:
        # Without the ETag: reading ranges of another version fails by itself.
        return client.head_object(Bucket=bucket, Key=key, PartNumber=number)["ContentLength"]

    try:
        answer: Mapping[str, Any] = client.head_object(Bucket=bucket, Key=key, IfMatch=etag, ChecksumMode="ENABLED")
        algorithm = next((name for name in ALGORITHMS if answer.get(f"Checksum{name}")), None)
        if algorithm is None:
            return None
        value, _, parts = str(answer[f"Checksum{algorithm}"]).partition("-")
        if not parts and answer.get("ChecksumType") != "COMPOSITE":
            return StoredChecksum(algorithm=algorithm, value=value)
        part_bytes = _part_bytes(int(parts), size, part_size)
    except (BotoCoreError, ClientError, ValueError):
        return None  # a server without checksums; what may not be read is said when it is read
    return None if part_bytes is None else StoredChecksum(algorithm=algorithm, value=value, part_bytes=part_bytes)


def _part_bytes(num_parts: int, size: int, size_of: Callable[[int], int]) -> int | None:
    """Size of all parts but the last; None for parts of several sizes, as only few programs upload them."""
    first = size_of(1)
    last = size_of(num_parts) if num_parts > 1 else first
    return first if first * (num_parts - 1) + last == size and 0 < last <= first else None


class _Digest(Protocol):
    def update(self, data: Any, /) -> None: ...
    def digest(self) -> bytes: ...


class Crc:
    """A running CRC, of bytes that come one after another."""

    def __init__(self, algorithm: str) -> None:
        self._function, self._size, self.value = _crc(algorithm), CRC_BYTES[algorithm], 0

    def update(self, data: Any, /) -> None:
        """Add the next bytes."""
        self.value = self._function(data, self.value)

    def digest(self) -> bytes:
        """The CRC, most significant byte first."""
        return self.value.to_bytes(self._size, "big")


def _crc(algorithm: str) -> Callable[[Any, int], int]:
    if algorithm == "CRC32":
        return zlib.crc32
    from awscrt import checksums

    function: Callable[[Any, int], int] = checksums.crc64nvme if algorithm == "CRC64NVME" else checksums.crc32c
    return function


def _combined(algorithm: str, first: int, second: int, second_bytes: int) -> int:
    """The CRC of two stretches one after the other, from the CRCs of both."""
    from awscrt import checksums

    combine = {
        "CRC64NVME": checksums.combine_crc64nvme,
        "CRC32C": checksums.combine_crc32c,
        "CRC32": checksums.combine_crc32,
    }[algorithm]
    return int(combine(first, second, second_bytes))


def _started(algorithm: str) -> _Digest:
    if algorithm in CRC_BYTES:
        return Crc(algorithm)
    return hashlib.new(algorithm.lower(), usedforsecurity=False)


class Verification:
    """The checksum of an object's bytes while they arrive, in order."""

    def __init__(self, stored: StoredChecksum, *, known: Mapping[int, tuple[int, int]] | None = None) -> None:
        """
        Args:
            stored: What S3 keeps of the object.
            known: End and CRC of each stretch that is not read again, by its start.
        """
        self._stored = stored
        self._known = known or {}
        self._position = self._mark = 0
        self._before = 0
        """CRC of the bytes before the mark."""
        self._running = _started(stored.algorithm)
        self._parts: list[bytes] = []

    def update(self, position: int, data: Any) -> None:
        """Add the bytes at a position; what lies before it and was not read is one of the known stretches."""
        while self._position < position:
            end, crc = self._known[self._position]
            self.cut()
            self._before = _combined(self._stored.algorithm, self._before, crc, end - self._position)
            self._position = self._mark = end
        rest = memoryview(data)
        while rest:
            piece = rest[: self._room]
            self._running.update(piece)
            self._position += len(piece)
            rest = rest[len(piece) :]
            if self._room == 0:
                self._end_part()

    def cut(self) -> int | None:
        """CRC of the bytes since the last cut; None where a checksum cannot be put together from such pieces."""
        if not self._stored.has_spans:
            return None
        assert isinstance(self._running, Crc)  # noqa: S101  (what has spans is a CRC)
        crc, num_bytes = self._running.value, self._position - self._mark
        self._before = _combined(self._stored.algorithm, self._before, crc, num_bytes)
        self._running, self._mark = Crc(self._stored.algorithm), self._position
        return crc

    def require(self, name: str) -> None:
        """Require that all bytes together have the checksum that S3 keeps.

        Raises:
            DatasetInvalid: If they have another one.
        """
        found = base64.b64encode(self._digest()).decode()
        if found != self._stored.value:
            raise DatasetInvalid(
                f"The bytes of {name} have {self._stored.algorithm} {found} and S3 keeps {self._stored.value}: they "
                "were damaged on the way; start again, and upload the object again if that does not help."
            )

    @property
    def _room(self) -> int:
        """Bytes until the part ends; a huge number for an object without parts."""
        part = self._stored.part_bytes
        return 2**62 if part is None else part - (self._position - self._mark)

    def _end_part(self) -> None:
        self._parts.append(self._running.digest())
        self._running, self._mark = _started(self._stored.algorithm), self._position

    def _digest(self) -> bytes:
        if self._stored.has_spans:
            self.cut()
            return self._before.to_bytes(CRC_BYTES[self._stored.algorithm], "big")
        if self._stored.part_bytes is None:
            return self._running.digest()
        if self._position > self._mark:
            self._end_part()
        whole = _started(self._stored.algorithm)
        whole.update(b"".join(self._parts))
        return whole.digest()
