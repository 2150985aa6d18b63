"""The access of runs to the buckets of a twin's home."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.aws.deployment import ARTIFACT_BUCKET, BUCKETS, DATA_BUCKET
from local.granted_buckets import FILE_NAME, GrantedBuckets, granted_buckets


def test_the_deployments_own_buckets_are_not_granted_beside_its_templates_and_others_for_reading(
    tmp_path: Path,
) -> None:
    found = granted_buckets(tmp_path, [ARTIFACT_BUCKET, "inputs", DATA_BUCKET], own=BUCKETS)
    assert found == GrantedBuckets(readable=("inputs",))


def test_a_bucket_is_written_to_if_the_home_names_it(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("# models go there\n\n models \n")
    found = granted_buckets(tmp_path, ["inputs", "models"], own=BUCKETS)
    assert found == GrantedBuckets(readable=("inputs",), writable=("models",))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"other", "there is no bucket other; make the folder"),
        (ARTIFACT_BUCKET.encode(), f"{ARTIFACT_BUCKET} is the deployment's"),
        (b"\xff", "cannot be read"),
    ],
)
def test_a_name_that_grants_nothing_is_refused_with_the_reason(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(ValueError, match=expected):
        granted_buckets(tmp_path, ["inputs", ARTIFACT_BUCKET], own=BUCKETS)
