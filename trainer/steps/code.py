"""Fetch the run's packed code into a folder.

In Kubernetes an init container does this (`trainer.helpers.install`); on Slurm's nodes the supervisor does.
The URL ends in the archive's digest. What has another digest is not unpacked.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import Path

from trainer.runtime import s3
from trainer.runtime.errors import CodeInvalid, ConfigInvalid, DatasetInvalid, StorageFailed
from trainer.staging.unpacking import safe_member

DIGEST = re.compile(r"(?:^|/)([0-9a-f]{64})\.tar\.gz$")
"""End of a packed archive's URL."""


def fetch(url: str, folder: Path) -> None:
    """Download, check and unpack packed code.

    Args:
        url: URL of the archive, which ends in its digest.
        folder: Folder of the unpacked files.

    Raises:
        CodeInvalid: If the archive is gone, is not the one that the URL names, or is unsafe to unpack.
        StorageFailed: If the archive cannot be read or the folder cannot be written.
    """
    named = DIGEST.search(url)
    if named is None:
        raise ConfigInvalid(f"The URL of the code is {url!r}; it has to end in the archive's SHA-256 and .tar.gz.")
    content = _downloaded(url)
    found = hashlib.sha256(content).hexdigest()
    if found != named[1]:
        raise CodeInvalid(f"workload.code: {url} has the SHA-256 {found}, so it is not what was packed.")
    _unpack(content, folder, url=url)


def _downloaded(url: str) -> bytes:
    from botocore.exceptions import BotoCoreError, ClientError

    place = s3.parse(url, option="url", key_required=True)
    try:
        return s3.connect().get_object(Bucket=place.bucket, Key=place.key)["Body"].read()
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket", "404"):
            raise CodeInvalid(f"workload.code: {url} does not exist.") from error
        raise StorageFailed(f"workload.code: {url} cannot be read ({error}).") from error
    except BotoCoreError as error:
        raise StorageFailed(f"workload.code: {url} cannot be read ({error}).") from error


def _unpack(content: bytes, folder: Path, *, url: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            # Python's own filter is in the last releases of 3.11 only; `safe_member` makes the same checks.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            for member in archive:
                archive.extract(safe_member(member, folder, name=url), folder)
    except DatasetInvalid as error:
        raise CodeInvalid(f"workload.code: {error}") from error
    except (tarfile.TarError, EOFError) as error:
        raise CodeInvalid(f"workload.code: {url} is not an archive ({error}).") from error
    except OSError as error:
        raise StorageFailed(f"workload.code: {url} cannot be unpacked to {folder} ({error}).") from error
