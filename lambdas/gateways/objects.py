"""Amazon S3: does an object exist, and small documents."""

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


def write(bucket: str, key: str, text: str) -> None:
    """Put a JSON document."""
    with translated("s3:PutObject"):
        client("s3").put_object(Bucket=bucket, Key=key, Body=text.encode(), ContentType="application/json")
