"""Amazon S3: existence and size of objects; small documents, read and written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType

from botocore.exceptions import ClientError

from lambdas.gateways.aws import client, translated

UNREADABLE = (403, 404)
"""S3's statuses for a missing object; without ListBucket it answers the same for one that may not be read."""

CHANGED = (404, 409, 412)
"""S3's statuses for a write on a condition that does not hold: the object is gone, is being written, has changed."""


MAX_PAGES = 20
"""Most pages of a listing that are read. A page has a thousand objects and takes a quarter of a second; data sets of
shards have fewer files."""


@dataclass(frozen=True)
class Head:
    """Metadata of an object."""

    num_bytes: int
    etag: str
    """ETag without its quotes."""
    version_id: str | None = None
    """None in a bucket without versions."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The object's own metadata, with lower-case names."""


def head(bucket: str, key: str, *, region: str | None = None, signed: bool = True) -> Head | None:
    """Metadata of an object; None if it does not exist or may not be read. A missing bucket counts as empty.

    Args:
        bucket: Name of the bucket.
        key: Key of the object.
        region: Region of the bucket; if it is left out and not the function's, boto3 asks S3 for it.
        signed: False for a public bucket.
    """
    try:
        with translated("s3:HeadObject"):
            answer = client("s3", region=region, signed=signed).head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in UNREADABLE:
            return None
        raise
    etag, metadata = str(answer["ETag"]).strip('"'), answer.get("Metadata", {})
    return Head(int(answer["ContentLength"]), etag, answer.get("VersionId"), metadata)


def has_checksum(bucket: str, key: str, *, region: str | None = None, signed: bool = True) -> bool | None:
    """Whether S3 keeps a checksum of an object; None if it may not be asked. Arguments as for `head`.

    If the object is encrypted with a customer's key, S3 returns the checksum only to callers with kms:Decrypt.
    Preflight has it for a granted bucket whose grant names the key.
    """
    try:
        with translated("s3:HeadObject"):
            found = client("s3", region=region, signed=signed).head_object(
                Bucket=bucket, Key=key, ChecksumMode="ENABLED"
            )
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, *UNREADABLE):
            return None
        raise
    return any(name.startswith("Checksum") and name != "ChecksumType" for name in found)


@dataclass(frozen=True)
class Listing:
    """Sum of the objects below a prefix."""

    is_empty: bool
    num_bytes: int | None
    """Size of all objects; None if they are more than `MAX_PAGES` pages."""


def list_below(bucket: str, prefix: str, *, region: str | None = None, signed: bool = True) -> Listing | None:
    """The objects below a prefix that ends in a slash; None if they may not be listed. Arguments as for `head`."""
    pages = client("s3", region=region, signed=signed).get_paginator("list_objects_v2")
    is_empty, num_bytes = True, 0
    try:
        with translated("s3:ListObjectsV2"):
            for number, page in enumerate(pages.paginate(Bucket=bucket, Prefix=prefix)):
                if number == MAX_PAGES:
                    return Listing(is_empty, None)
                # The console creates an object with the prefix as its key to show an empty folder.
                is_empty = is_empty and all(found["Key"] == prefix for found in page.get("Contents", ()))
                num_bytes += sum(int(found["Size"]) for found in page.get("Contents", ()))
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in UNREADABLE:
            return None
        raise
    return Listing(is_empty, num_bytes)


def read(bucket: str, key: str, *, version_id: str | None, limit_bytes: int) -> bytes | None:
    """The object's first bytes; None if it does not exist or may not be read.

    Args:
        bucket: Name of the bucket.
        key: Key of the object.
        version_id: Version to read; None for the newest.
        limit_bytes: Largest number of bytes to read.
    """
    version = {"VersionId": version_id} if version_id else {}
    # 400: no such version; 405: a delete marker.
    found = _read(bucket, key, limit_bytes=limit_bytes, absent=(*UNREADABLE, 400, 405), **version)
    return found[0] if found else None


def read_tagged(bucket: str, key: str, *, limit_bytes: int) -> tuple[bytes, str] | None:
    """The object's first bytes with its ETag, for `write_if_same`; None if it does not exist or may not be read.

    Args:
        bucket: Name of the bucket.
        key: Key of the object.
        limit_bytes: Largest number of bytes to read.
    """
    return _read(bucket, key, limit_bytes=limit_bytes, absent=UNREADABLE)


def _read(
    bucket: str, key: str, *, limit_bytes: int, absent: Collection[int], **version: str
) -> tuple[bytes, str] | None:
    try:
        with translated("s3:GetObject"):
            found = client("s3").get_object(Bucket=bucket, Key=key, **version)
            with closing(found["Body"]) as body:
                # botocore compares the checksum of an object that is read as a whole.
                content: bytes = body.read(None if found["ContentLength"] <= limit_bytes else limit_bytes)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in absent:
            return None
        raise
    return content, str(found["ETag"])


def delete(bucket: str, key: str) -> None:
    """Delete an object, if it exists. In a bucket with versions the older ones stay."""
    with translated("s3:DeleteObject"):
        client("s3").delete_object(Bucket=bucket, Key=key)


def write(
    bucket: str,
    key: str,
    text: str,
    *,
    content_type: str = "application/json",
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a document."""
    with translated("s3:PutObject"):
        client("s3").put_object(
            Bucket=bucket, Key=key, Body=text.encode(), ContentType=content_type, Metadata=dict(metadata)
        )


def write_if_same(bucket: str, key: str, text: str, *, etag: str | None) -> str | None:
    """Write a JSON document unless somebody else has written it in the meantime.

    Args:
        bucket: Name of the bucket.
        key: Key of the object.
        text: The document.
        etag: ETag of the object that was read; None if it did not exist.

    Returns:
        The new ETag; None if nothing was written, because the object has changed.
    """
    condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
    try:
        with translated("s3:PutObject"):
            answer = client("s3").put_object(
                Bucket=bucket, Key=key, Body=text.encode(), ContentType="application/json", **condition
            )
    except ClientError as error:
        missing_bucket = error.response["Error"]["Code"] == "NoSuchBucket"
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in CHANGED and not missing_bucket:
            return None
        raise
    return str(answer["ETag"])
