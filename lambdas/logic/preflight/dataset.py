"""Check whether the data set exists at its URL, and whether the shared file system has it already."""

from __future__ import annotations

from collections.abc import Iterator

from lambdas.logic.preflight.findings import Finding, Note, Problem
from trainflow.spec.run_spec import Dataset
from trainflow.workflow.preflight import DatasetFacts, Probed, Unknown

WAYS_OUT = (
    "correct the URL, put it below data/ of the data bucket, set dataset.public if its bucket is public, or add its "
    "bucket to storage.grants in the deployment's configuration, which grants {} on it"
)
"""Advice for the user. S3 does not distinguish a missing object from one that may not be read, and Preflight may read
less than the pods."""


NAT_USD_PER_GB = 0.045
"""Price of a GB through a NAT gateway (Amazon VPC pricing, us-west-2, November 2026)."""


def dataset_findings(dataset: Dataset, facts: DatasetFacts) -> Iterator[Finding]:
    """Findings about missing objects. A URL with https:// cannot be checked here: only the pods have that connection.

    Args:
        dataset: Data set of the spec.
        facts: Facts about its source.
    """
    if not facts.is_there:
        what, may, action = ("object below", "list", "s3:ListBucket") if dataset.is_prefix else ("object", *READING)
        yield _missing("dataset.url", f"{what} {dataset.url}", may=may, action=action)
    if not facts.manifest_is_there:
        may, action = READING
        yield _missing("dataset.manifest_url", f"object {dataset.manifest_url}", may=may, action=action)
    if facts.is_verifiable is False:
        yield Note(
            f"dataset.url: {dataset.url} is not verifiable, because S3 keeps no checksum of it: damaged bytes would "
            "not be noticed; give dataset.sha256 or dataset.manifest_url, or upload it again with a checksum."
        )
    if facts.from_region is not None and facts.is_there:
        yield _cross_region(dataset, facts.from_region, facts.num_bytes)


def _cross_region(dataset: Dataset, region: str, num_bytes: int | Unknown) -> Note:
    """The note on what staging costs: an S3 gateway endpoint serves the buckets of its own Region only."""
    price = f"{NAT_USD_PER_GB:g} USD a GB"
    if not isinstance(num_bytes, Unknown):
        gigabytes = num_bytes / 1e9
        price = f"{gigabytes * NAT_USD_PER_GB:.2f} USD for {gigabytes:.1f} GB ({price})"
    return Note(
        f"dataset.url: {dataset.url} is in {region}, so that its first staging goes through the NAT gateway, for about "
        f"{price}; the bucket's owner pays for the transfer between Regions. A copy in the data bucket costs neither."
    )


def needs_stored_checksum(dataset: Dataset) -> bool:
    """Whether only a checksum of S3 can verify an archive, because the spec and the archive's compression lack one.
    zstd adds a checksum only on request."""
    given = dataset.sha256 is not None or dataset.manifest_url is not None
    return not given and dataset.in_s3 and dataset.url.endswith((".tar", ".tar.zst"))


def folder_findings(dataset: Dataset, seen: Probed) -> Iterator[Finding]:
    """A problem if the folder has another data set, which a run may be reading: staging would refuse it."""
    if seen.staged_url not in (None, dataset.url):
        yield Problem(
            f"dataset.name: /data/{dataset.folder} holds {seen.staged_url}; give {dataset.url} a name of its own, or "
            "remove the other."
        )


def is_staged(dataset: Dataset, facts: DatasetFacts, seen: Probed) -> bool:
    """Whether the shared file system has the data set already, so that nothing will be copied.

    Args:
        dataset: Data set of the spec.
        facts: Facts about its source: a new upload under an old URL is staged again.
        seen: Result of the probe.
    """
    same_upload = facts.etag is None or seen.staged_etag in (None, facts.etag)
    return seen.staged_url == dataset.url and same_upload


READING = ("read", "s3:GetObject")


def _missing(field: str, what: str, *, may: str, action: str) -> Problem:
    return Problem(f"{field}: there is no {what}, or this run may not {may} it; {WAYS_OUT.format(action)}.")
