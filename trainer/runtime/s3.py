"""Objects in S3, for the programs that move files."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainer.runtime.errors import ConfigInvalid
from trainflow.protocol.s3_urls import S3Url, parse_s3_url

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def parse(url: str, *, option: str, key_required: bool) -> S3Url:
    """Bucket and key of an option's `s3://bucket/key`.

    Args:
        url: As the user wrote it.
        option: Name of the option, for the message.
        key_required: Whether a key has to follow the bucket.

    Raises:
        ConfigInvalid: If it is not an S3 URL.
    """
    place = parse_s3_url(url)
    if place is None or (key_required and not place.key):
        wanted = "s3://bucket/key" if key_required else "s3://bucket/prefix/"
        raise ConfigInvalid(f"--{option} is {url!r}; it has to look like {wanted}.")
    return place


def connect(*, unsigned: bool = False, region: str | None = None) -> S3Client:
    """A client with the pod's own role; endpoint and region come from the environment as for any AWS program.

    Args:
        unsigned: Send no credentials, for buckets that are open to everybody.
        region: Of the bucket, where it is not the environment's.
    """
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    retries = Config(retries={"mode": "standard", "max_attempts": 5})
    config = retries.merge(Config(signature_version=UNSIGNED)) if unsigned else retries
    region = region or boto3.Session().region_name or "us-east-1"  # where S3 answers for buckets of every region
    return boto3.client("s3", config=config, region_name=region)


def is_aws(endpoint: str) -> bool:
    """Whether an endpoint is AWS's own, which has regions and a host for each bucket."""
    return ".amazonaws." in urlsplit(endpoint).netloc


def bucket_region(client: S3Client, bucket: str) -> str:
    """Region of a bucket. S3 reports it even to callers that may not read the bucket.

    An endpoint that is not AWS's does not have Regions: the client's own Region is returned.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    here = client.meta.region_name
    if not is_aws(client.meta.endpoint_url):
        return here
    try:
        return client.head_bucket(Bucket=bucket).get("BucketRegion", here)
    except ClientError as error:
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return str(headers.get("x-amz-bucket-region", here))
    except BotoCoreError:
        return here  # reading the object will tell what is wrong
