"""Manifests are what `sha256sum` writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.trainer.staging.object_server import ObjectServer
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound
from trainer.staging import manifest

SUM = "0" * 64


def test_what_sha256sum_writes_is_read(tmp_path: Path) -> None:
    for name in ("b c.bin", "a"):
        (tmp_path / name).write_text("x")
    text = subprocess.run(
        ["sha256sum", "-b", "./a", "b c.bin"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    one = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert manifest.parse(text, url="s3://b/SUMS") == {"a": one, "b c.bin": one}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abc  a", "Line 1 of the manifest s3://b/SUMS is 'abc  a'"),
        (f"{SUM}  a\n\n{SUM}  ./a\n", "Line 3 of the manifest s3://b/SUMS names 'a' a second time"),
    ],
)
def test_a_line_that_is_none_is_named(text: str, words: str) -> None:
    with pytest.raises(DatasetInvalid, match=words):
        manifest.parse(text, url="s3://b/SUMS")


def test_a_manifest_that_is_not_there_is_named(server: ObjectServer) -> None:
    with pytest.raises(DatasetNotFound, match="has no object 'SUMS'"):
        manifest.read("s3://datasets/SUMS", unsigned=False, region=None)
    with pytest.raises(ConfigInvalid, match="--manifest_url"):
        manifest.read("https://example.com/SUMS", unsigned=False, region=None)


def test_a_file_that_the_manifest_names_and_the_data_set_lacks_is_named() -> None:
    advice = "upload it, or correct the manifest"
    with pytest.raises(DatasetInvalid, match=rf"does not hold 'a'.*\(2 such files\); {advice}\.$"):
        manifest.require_all({"a": SUM, "b": SUM, "c": SUM}, {"c"}, url="s3://b/a.tar")
