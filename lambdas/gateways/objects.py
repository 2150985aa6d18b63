"""Amazon S3: do objects exist, and small documents, read and written."""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import ClientError

from lambdas.gateways.aws import client, translated

UNREADABLE = (403, 404)
"""S3's answers for what is not there; without ListBucket it does not tell that from what may not be read."""


MAX_PAGES = 20
"""Of a thousand objects each, a quarter of a second a page: more files than data sets of shards have."""


@dataclass(frozen=True)
class Head:
    """What S3 says of an object without its content."""

    num_bytes: int
    etag: str
    """Without its quotes."""


def head(bucket: str, key: str, *, region: str | None = None, signed: bool = True) -> Head | None:
    """An object's size and ETag; None if it is not there or may not be read. A missing bucket holds nothing.

    Args:
        bucket: Where it would be.
        key: What it would be called.
        region: The bucket's; boto3 asks S3 for it when it is another one than this.
        signed: False for a bucket that anybody may read.
    """
    try:
        with translated("s3:HeadObject"):
            answer = client("s3", region=region, signed=signed).head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in UNREADABLE:
            return None
        raise
    return Head(int(answer["ContentLength"]), str(answer["ETag"]).strip('"'))


@dataclass(frozen=True)
class Listing:
    """What S3 says of all objects below a prefix."""

    is_empty: bool
    num_bytes: int | None
    """None if they are too many to be counted here."""


def list_below(bucket: str, prefix: str, *, region: str | None = None, signed: bool = True) -> Listing | None:
    """The objects below a prefix that ends in a slash; None if they may not be listed. Arguments as for `head`."""
    pages = client("s3", region=region, signed=signed).get_paginator("list_objects_v2")
    is_empty, num_bytes = True, 0
    try:
        with translated("s3:ListObjectsV2"):
            for number, page in enumerate(pages.paginate(Bucket=bucket, Prefix=prefix)):
                if number == MAX_PAGES:
                    return Listing(is_empty, None)
                # The console makes an object of the prefix itself to show an empty folder.
                is_empty = is_empty and all(found["Key"] == prefix for found in page.get("Contents", ()))
                num_bytes += sum(int(found["Size"]) for found in page.get("Contents", ()))
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in UNREADABLE:
            return None
        raise
    return Listing(is_empty, num_bytes)


def read(bucket: str, key: str, *, version_id: str | None, limit_bytes: int) -> bytes | None:
    """The object's first bytes; None if it is not there or may not be read.

    Args:
        bucket: Where it is.
        key: What it is called.
        version_id: Which of its versions; the newest without one.
        limit_bytes: No more than these are read.
    """
    version = {"VersionId": version_id} if version_id else {}
    try:
        with translated("s3:GetObject"):
            body = client("s3").get_object(Bucket=bucket, Key=key, **version)["Body"]
            content: bytes = body.read(limit_bytes)
    except ClientError as error:
        # 400: no such version; 405: a delete marker.
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403, 404, 405):
            return None
        raise
    return content


def write(bucket: str, key: str, text: str, *, content_type: str = "application/json") -> None:
    """Put a document."""
    with translated("s3:PutObject"):
        client("s3").put_object(Bucket=bucket, Key=key, Body=text.encode(), ContentType=content_type)
