"""One reading of S3 URLs, by the run spec and by the stager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.s3_urls import S3Url, parse_s3_url

BUCKETS = st.from_regex(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", fullmatch=True)
"""Names of buckets (Amazon S3 user guide, "General purpose bucket naming rules")."""

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""Any sequence of Unicode characters (Amazon S3 user guide, "Naming Amazon S3 objects")."""


@given(bucket=BUCKETS, key=KEYS)
def test_any_bucket_and_key_come_back_from_their_url(bucket: str, key: str) -> None:
    place = S3Url(bucket, key)
    assert parse_s3_url(str(place)) == place


@given(text=st.text())
def test_any_other_text_is_none_or_names_a_bucket(text: str) -> None:
    found = parse_s3_url(text)
    assert found is None or found.bucket


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("s3://bucket/corpus#1.tar", "corpus#1.tar"),
        ("s3://bucket/a?b.tar", "a?b.tar"),
        ("s3://bucket//twice.tar", "/twice.tar"),
        ("S3://bucket/a.tar", "a.tar"),
        ("s3://bucket", ""),
    ],
)
def test_every_character_behind_the_bucket_belongs_to_the_key(url: str, key: str) -> None:
    assert parse_s3_url(url) == S3Url("bucket", key)


@pytest.mark.parametrize("url", ["", "s3:", "s3:/bucket/key", "s3:///key", "https://bucket/key", " s3://bucket/key"])
def test_what_names_no_bucket_is_no_s3_url(url: str) -> None:
    assert parse_s3_url(url) is None


@pytest.mark.parametrize(
    ("prefix", "below"),
    [
        ("s3://bucket", "s3://bucket/a/b"),
        ("s3://bucket/runs/", "s3://bucket/runs/a/b"),
        ("s3://bucket/runs", "s3://bucket/runs/a/b"),
        ("s3://bucket/runs//", "s3://bucket/runs//a/b"),
    ],
)
def test_an_object_below_a_prefix_keeps_the_prefix_as_it_is(prefix: str, below: str) -> None:
    place = parse_s3_url(prefix)
    assert place is not None and str(place.below("a/b")) == below
