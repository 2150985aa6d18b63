"""Checksums that the publisher of a data set provides, as `sha256sum` writes them: one line per file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from trainer.runtime import s3
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound
from trainer.staging.source import refusal
from trainflow.protocol.s3_urls import parse_s3_url

LINE = re.compile(r"(?P<checksum>[0-9a-fA-F]{64}) [ *](?P<path>.+)")

LARGEST_BYTES = 64 * 2**20
"""Largest manifest that is read: half a million files."""


def read(url: str, *, unsigned: bool, region: str | None) -> Mapping[str, str]:
    """Read the manifest at a URL.

    Args:
        url: s3://bucket/key.
        unsigned: Send no credentials.
        region: The region of the bucket; None to ask S3.

    Returns:
        SHA-256 by path below the data set's folder.

    Raises:
        ConfigInvalid: If the URL is not of this form.
        DatasetNotFound: If the object does not exist, or may not be read.
        DatasetInvalid: If the object is not a manifest.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    if parse_s3_url(url) is None:
        raise ConfigInvalid(f"--manifest_url is {url!r}; put the manifest into a bucket and give its s3:// URL.")
    location = s3.parse(url, option="manifest_url", key_required=True)
    try:
        answer = s3.connect(unsigned=unsigned, region=region).get_object(Bucket=location.bucket, Key=location.key)
        if answer["ContentLength"] > LARGEST_BYTES:
            raise DatasetInvalid(
                f"{url} has {answer['ContentLength']} bytes, so it is not a manifest; correct the URL."
            )
        text = answer["Body"].read().decode(errors="replace")
    except ClientError as error:
        raise DatasetNotFound(refusal(location, error.response["Error"]["Code"])) from error
    except BotoCoreError as error:
        raise DatasetNotFound(f"{url} cannot be read ({error}); check endpoint and credentials.") from error
    return parse(text, url=url)


def parse(text: str, *, url: str) -> Mapping[str, str]:
    """Parse the lines of `sha256sum`.

    Raises:
        DatasetInvalid: If a line has another form, or names a file again.
    """
    checksums: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        if found is None:
            raise DatasetInvalid(
                f"Line {number} of the manifest {url} is {line[:80]!r}; it has to be as `sha256sum` writes it: "
                "64 hexadecimal digits, two spaces, path."
            )
        path = str(PurePosixPath(found["path"]))
        if path in checksums:
            raise DatasetInvalid(
                f"Line {number} of the manifest {url} names {path!r} a second time; remove one of them."
            )
        checksums[path] = found["checksum"].lower()
    return checksums


def digest(manifest: Mapping[str, str]) -> str:
    """A digest that is equal for two manifests with the same lines in any order."""
    return hashlib.sha256(json.dumps(sorted(manifest.items())).encode()).hexdigest()


def require(manifest: Mapping[str, str], path: str, found: str) -> None:
    """Require that a file has the checksum of the manifest.

    Raises:
        DatasetInvalid: If it has another one, or the manifest does not name the file.
    """
    if path not in manifest:
        raise DatasetInvalid(f"The manifest does not name the file {path!r}; add it to the manifest, or leave it out.")
    if manifest[path] != found:
        raise DatasetInvalid(
            f"The file {path!r} has SHA-256 {found} and the manifest says {manifest[path]}; "
            "upload the file again, or correct the manifest."
        )


def require_all(manifest: Mapping[str, str], paths: set[str], *, url: str) -> None:
    """Require that every file of the manifest is there.

    Raises:
        DatasetInvalid: If one is missing; the message names it.
    """
    lacking = sorted(manifest.keys() - paths)
    if lacking:
        raise DatasetInvalid(
            f"{url} does not hold {lacking[0]!r}, which the manifest names ({len(lacking)} such files); upload it, or "
            "correct the manifest."
        )
