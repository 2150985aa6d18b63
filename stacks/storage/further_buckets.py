"""Permissions of runs, and of the function that checks data sets, on further buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import aws_cdk as cdk

from stacks.orchestration.permissions import Grant, allow
from stacks.shared.acknowledgements import Reason
from trainflow.configuration.grants import BucketGrant

THROUGH_S3 = {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}}
"""The bucket may be in any Region."""


def for_runs(granted: Iterable[BucketGrant]) -> Iterator[Grant]:
    """Reading and adding objects, as configured."""
    for each in granted:
        if each.read:
            yield from _reading(each)
        if each.write:
            yield _on_objects(each, "s3:PutObject", "s3:AbortMultipartUpload")
        if each.kms_key_arn is not None:
            # Uploads in parts decrypt, too (S3 user guide, multipart upload and permissions).
            yield allow("kms:Decrypt", on=each.kms_key_arn, when=THROUGH_S3)
            if each.write:
                yield allow("kms:GenerateDataKey", on=each.kms_key_arn, when=THROUGH_S3)


def for_preflight(granted: Iterable[BucketGrant]) -> Iterator[Grant]:
    """Actions to check that a data set exists, which S3 counts as reads."""
    for each in granted:
        if each.read:
            yield from _reading(each)
            if each.kms_key_arn is not None:
                yield allow("kms:Decrypt", on=each.kms_key_arn, when=THROUGH_S3)


def _reading(each: BucketGrant) -> Iterator[Grant]:
    yield _on_objects(each, "s3:GetObject")
    below = {"StringLike": {"s3:prefix": f"{each.prefix}*"}} if each.prefix else None
    yield allow("s3:ListBucket", on=_arn(each), when=below)


def _on_objects(each: BucketGrant, *actions: str) -> Grant:
    return allow(*actions, on=f"{_arn(each)}/{each.prefix}*", pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS)


def _arn(each: BucketGrant) -> str:
    return f"arn:{cdk.Aws.PARTITION}:s3:::{each.bucket}"
