"""Finds the files to stage and their version: an archive in S3 or on the web, or every object below a prefix."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from trainer.runtime import s3
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound
from trainer.staging import marker
from trainflow.protocol.s3_urls import S3Url, parse_s3_url

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

SAFE_IN_PATH = "-._~/"
"""Characters that SigV4 does not escape in a key, beside letters and digits."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One version of an object or of an archive on the web."""

    name: str
    """Path of an object below the prefix; for an archive, its own name."""
    url: str
    """URL as the user writes it."""
    address: str
    """URL that is requested: http(s)://host/path."""
    size: int
    etag: str | None
    """ETag with its quotes; None where the server sends none that fits a ranged request."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files to stage, and their version."""

    url: str
    etag: str
    """ETag or SHA-256 of an archive; for a prefix, a digest of its objects' names, sizes and ETags."""
    files: tuple[RemoteFile, ...]
    is_archive: bool
    region: str | None
    """Region to sign requests for; None where requests are not signed."""

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)


def open_source(url: str, *, unsigned: bool, region: str | None, sha256: str | None) -> Source:
    """Find the files of a URL, and their version.

    Args:
        url: s3://bucket/key, s3://bucket/prefix/ or https://….
        unsigned: Send no credentials.
        region: The region of the bucket; None to ask S3.
        sha256: The checksum of the archive, which an archive from the web needs.

    Raises:
        ConfigInvalid: If the URL has another form.
        DatasetNotFound: If the object does not exist, or may not be read.
    """
    if parse_s3_url(url) is None and urlsplit(url).scheme == "https":
        return _on_the_web(url, sha256)
    location = s3.parse(url, option="url", key_required=True)
    client = s3.connect(unsigned=unsigned, region=region)
    if region is None and (found := s3.bucket_region(client, location.bucket)) != client.meta.region_name:
        client = s3.connect(unsigned=unsigned, region=found)
    addresses = addresses_in(location.bucket, client.meta.endpoint_url)
    is_archive = not location.is_prefix
    files = (_archive(client, location, addresses),) if is_archive else objects_below(client, location, addresses)
    return Source(
        url=url,
        etag=(files[0].etag or "").strip('"') if is_archive else digest(files),
        files=tuple(files),
        is_archive=is_archive,
        region=None if unsigned else client.meta.region_name,
    )


def digest(files: tuple[RemoteFile, ...]) -> str:
    """A digest that changes if any object below the prefix changes."""
    lines = (f"{file.etag} {file.size} {file.name}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def addresses_in(bucket: str, endpoint: str) -> str:
    """The beginning of the addresses of a bucket's objects.

    Args:
        bucket: The name of the bucket. One with dots goes into the path, because no certificate covers it as part of a
            host.
        endpoint: The endpoint of S3 in the bucket's region, or of another server.
    """
    parts = urlsplit(endpoint)
    is_host = s3.is_aws(endpoint) and "." not in bucket
    return f"{parts.scheme}://{bucket}.{parts.netloc}/" if is_host else f"{endpoint.rstrip('/')}/{bucket}/"


def _archive(client: S3Client, location: S3Url, addresses: str) -> RemoteFile:
    from botocore.exceptions import BotoCoreError, ClientError

    try:  # ask for one byte, because the answer to HEAD has no body with the error
        answer = client.get_object(Bucket=location.bucket, Key=location.key, Range="bytes=0-0")
        answer["Body"].close()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in ("InvalidRange", "416"):
            raise DatasetInvalid(f"The archive {location} is empty, so it is truncated or no tar archive.") from error
        raise DatasetNotFound(refusal(location, code)) from error
    except BotoCoreError as error:
        raise DatasetNotFound(f"{location} cannot be read ({error}); check endpoint and credentials.") from error
    return RemoteFile(
        name=PurePosixPath(location.key).name,
        url=str(location),
        address=f"{addresses}{quote(location.key, safe=SAFE_IN_PATH)}",
        size=_total(answer.get("ContentRange", ""), str(location)),
        etag=answer["ETag"],
    )


def objects_below(client: S3Client, prefix: S3Url, addresses: str) -> tuple[RemoteFile, ...]:
    """Every object below a prefix, in the order of their keys, without the markers of folders.

    Raises:
        DatasetNotFound: If objects are missing, or may not be listed.
        DatasetInvalid: If a key cannot be the path of a file.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        files = tuple(_listed(client, prefix, addresses))
    except ClientError as error:
        code = error.response["Error"]["Code"]
        raise DatasetNotFound(refusal(prefix, code, action="s3:ListBucket")) from error
    except BotoCoreError as error:
        raise DatasetNotFound(f"{prefix} cannot be listed ({error}); check endpoint and credentials.") from error
    if not files:
        raise DatasetNotFound(f"There is no object below {prefix}; upload the data set or correct the URL.")
    return files


def _listed(client: S3Client, prefix: S3Url, addresses: str) -> Iterator[RemoteFile]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=prefix.bucket, Prefix=prefix.key)
    for found in (entry for page in pages for entry in page.get("Contents", [])):
        name = found["Key"].removeprefix(prefix.key)
        if found["Key"].endswith("/") or name == marker.INSIDE:  # the marker of a linked folder, exported to its bucket
            continue
        _require_path(name, prefix)
        yield RemoteFile(
            name=name,
            url=str(S3Url(prefix.bucket, found["Key"])),
            address=f"{addresses}{quote(found['Key'], safe=SAFE_IN_PATH)}",
            size=found["Size"],
            etag=found["ETag"],
        )


def _require_path(name: str, prefix: S3Url) -> None:
    parts = name.split("/")
    if name.startswith("/") or not {"", ".", ".."}.isdisjoint(parts) or "\0" in name:
        raise DatasetInvalid(
            f"The object {name!r} below {prefix} has no name that a file could have; rename or remove it."
        )


def _on_the_web(url: str, sha256: str | None) -> Source:
    if sha256 is None:
        raise ConfigInvalid(f"--sha256 is missing; nothing else tells whether {url} gives what it should.")
    file = resolved(RemoteFile(name=PurePosixPath(urlsplit(url).path).name, url=url, address=url, size=0, etag=None))
    return Source(url=url, etag=f"sha256:{sha256}", files=(file,), is_archive=True, region=None)


def resolved(file: RemoteFile) -> RemoteFile:
    """Follow the redirects of an https:// URL. The address may be signed for a few minutes only.

    Raises:
        DatasetNotFound: If the server does not answer or lacks ranged reads, or the address is not encrypted.
    """
    import urllib3

    pool = urllib3.PoolManager(ca_certs=os.environ.get("AWS_CA_BUNDLE"), retries=urllib3.Retry(5))
    try:
        answer = pool.request("GET", file.url, headers={"Range": "bytes=0-0"}, preload_content=False)
        answer.close()
    except urllib3.exceptions.HTTPError as error:
        raise DatasetNotFound(f"{file.url} cannot be read ({error}); check the URL and the network.") from error
    if answer.status not in (200, 206):
        raise DatasetNotFound(f"{file.url} cannot be read: its server answers {answer.status}; correct the URL.")
    address = urljoin(file.url, answer.geturl() or "")
    if urlsplit(address).scheme != "https":
        raise DatasetNotFound(f"{file.url} leads to {address}, which is not encrypted; give an https:// URL.")
    etag = answer.headers.get("ETag")
    return replace(
        file,
        address=address,
        size=_total(answer.headers.get("Content-Range", ""), file.url),
        etag=etag if etag and not etag.startswith("W/") else None,  # a weak ETag matches no range (RFC 9110, 13.1.1)
    )


def refusal(location: S3Url, code: str, *, action: str = "s3:GetObject") -> str:
    """Explain an error code of S3 in a sentence."""
    known = {
        "NoSuchBucket": f"There is no bucket {location.bucket!r}; correct the URL {location}.",
        "NoSuchKey": f"The bucket {location.bucket!r} has no object {location.key!r}; upload it or correct the URL.",
        "AccessDenied": f"{location} may not be read; check the URL, and give the pod's role {action} on it.",
    }
    return known.get(code, f"{location} cannot be read: S3 answers {code}; check URL and permissions.")


def _total(content_range: str, url: str) -> int:
    """Read the total size from a Content-Range such as `bytes 0-0/1234`."""
    found = re.fullmatch(r"bytes \d+-\d+/(\d+)", content_range)
    if found is None:
        raise DatasetNotFound(
            f"The server of {url} does not answer ranged reads; copy the archive into a bucket and give its s3:// URL."
        )
    return int(found[1])
