"""Amazon S3: does an object exist, and small documents, read and written."""

from __future__ import annotations

from botocore.exceptions import ClientError

from lambdas.gateways.aws import client, translated


def exists(bucket: str, key: str) -> bool:
    """Whether the object is there and may be read. A bucket that does not exist holds nothing."""
    try:
        with translated("s3:HeadObject"):
            client("s3").head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        # Without ListBucket, S3 answers 403 for a key that is not there.
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in (403, 404):
            return False
        raise
    return True


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


def write(bucket: str, key: str, text: str) -> None:
    """Put a JSON document."""
    with translated("s3:PutObject"):
        client("s3").put_object(Bucket=bucket, Key=key, Body=text.encode(), ContentType="application/json")
