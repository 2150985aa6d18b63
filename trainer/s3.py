"""Objects in S3, for the programs that move files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainer.errors import ConfigInvalid

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


@dataclass(frozen=True)
class Location:
    """A bucket and a key, or the beginning of one."""

    bucket: str
    key: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def below(self, name: str) -> Location:
        """An object under this prefix."""
        return Location(self.bucket, f"{self.key.rstrip('/')}/{name}".lstrip("/"))


def parse(url: str, *, option: str, key_required: bool) -> Location:
    """Take `s3://bucket/key` apart.

    Args:
        url: As the user wrote it.
        option: Name of the option, for the message.
        key_required: Whether the bucket alone is not enough.

    Raises:
        ConfigInvalid: If it is no S3 URL.
    """
    parts = urlsplit(url)
    key = parts.path.lstrip("/")
    if parts.scheme != "s3" or not parts.netloc or (key_required and not key):
        wanted = "s3://bucket/key" if key_required else "s3://bucket/prefix/"
        raise ConfigInvalid(f"--{option} is {url!r}; it has to look like {wanted}.")
    return Location(parts.netloc, key)


def connect(*, unsigned: bool = False) -> S3Client:
    """A client with the pod's own role; endpoint and region come from the environment as for any AWS program.

    Args:
        unsigned: Send no credentials, for buckets that are open to everybody.
    """
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    retries = Config(retries={"mode": "standard", "max_attempts": 5})
    config = retries.merge(Config(signature_version=UNSIGNED)) if unsigned else retries
    region = boto3.Session().region_name or "us-east-1"  # where S3 answers for buckets of every region
    return boto3.client("s3", config=config, region_name=region)
