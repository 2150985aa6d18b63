"""An archive in S3 as a stream that survives a broken connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer import s3
from trainer.errors import DatasetInvalid, DatasetNotFound
from trainer.s3 import Location

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3.client import S3Client

MAX_RECONNECTIONS = 10
"""Without a byte in between: an archive of 50 GB takes long enough for more than one connection to break."""


class Source:
    """The object's bytes, in order."""

    def __init__(self, client: S3Client, location: Location, body: StreamingBody, *, etag: str, length: int) -> None:
        """
        Args:
            client: To ask for the rest with when the connection breaks.
            location: Where the object is.
            body: Its first connection.
            etag: Its version; the rest has to be of the same.
            length: Its size in bytes.
        """
        self.location = location
        self.etag = etag
        self._client = client
        self._body = body
        self._length = length
        self._position = 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; empty at the end."""
        from botocore.exceptions import BotoCoreError, HTTPClientError

        for _ in range(MAX_RECONNECTIONS):
            try:
                data = self._body.read(size if size >= 0 else None)
            except (BotoCoreError, HTTPClientError, OSError):
                self._reconnect()
                continue
            self._position += len(data)
            return data
        raise DatasetNotFound(
            f"The connection to {self.location.url} broke {MAX_RECONNECTIONS} times at byte {self._position}; "
            "check the network and start again."
        )

    def require_all_read(self) -> None:
        """Read what follows the archive's end; there may be padding, and the object has to be whole."""
        while self.read(1 << 20):
            pass
        if self._position != self._length:
            raise DatasetInvalid(
                f"The archive {self.location.url} ended after {self._position} of {self._length} bytes; start again."
            )

    def close(self) -> None:
        """Give the connection back."""
        self._body.close()

    def _reconnect(self) -> None:
        self.close()
        answer = _get(self._client, self.location, rest_from=self._position, etag=self.etag)
        self._body = answer[0]


@contextmanager
def open_source(location: Location, *, unsigned: bool) -> Iterator[Source]:
    """Open an object for reading.

    Raises:
        DatasetNotFound: If there is no such bucket or key, or it may not be read.
    """
    client = s3.connect(unsigned=unsigned)
    body, etag, length = _get(client, location)
    source = Source(client, location, body, etag=etag, length=length)
    try:
        yield source
    finally:
        source.close()


def _get(
    client: S3Client, location: Location, *, rest_from: int = 0, etag: str | None = None
) -> tuple[StreamingBody, str, int]:
    from botocore.exceptions import BotoCoreError, ClientError

    condition = {"IfMatch": f'"{etag}"', "Range": f"bytes={rest_from}-"} if etag is not None else {}
    try:
        answer = client.get_object(Bucket=location.bucket, Key=location.key, **condition)  # type: ignore[arg-type]
    except ClientError as error:
        raise DatasetNotFound(_refusal(location, error.response.get("Error", {}).get("Code", ""))) from error
    except BotoCoreError as error:
        raise DatasetNotFound(f"{location.url} cannot be read ({error}); check endpoint and credentials.") from error
    return answer["Body"], answer["ETag"].strip('"'), answer["ContentLength"]


def _refusal(location: Location, code: str) -> str:
    known = {
        "NoSuchBucket": f"There is no bucket {location.bucket!r}; correct the URL {location.url}.",
        "NoSuchKey": f"The bucket {location.bucket!r} has no object {location.key!r}; upload it or correct the URL.",
        "AccessDenied": f"{location.url} may not be read; check the URL, and give the pod's role s3:GetObject on it.",
        "PreconditionFailed": f"{location.url} was replaced while it was being read; start again.",
    }
    return known.get(code, f"{location.url} cannot be read: S3 answers {code}; check URL and permissions.")
