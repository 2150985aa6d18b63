"""Manifests are what `sha256sum` writes."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.unit.trainer.staging.object_server import ObjectServer
from tests.wording import wording
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
        (
            f"abc  {'a' * 100}",
            f"Line 1 of the manifest s3://b/SUMS is 'abc  {'a' * 75}'; it has to be as `sha256sum` writes it: 64 "
            "hexadecimal digits, two spaces, path.",
        ),
        (
            f"{SUM}  a\n\n{SUM}  ./a\n",
            wording("manifest.a_line_that_is_none_is_named", "'a'"),
        ),
    ],
)
def test_a_line_that_is_none_is_named(text: str, words: str) -> None:
    with pytest.raises(DatasetInvalid) as refused:
        manifest.parse(text, url="s3://b/SUMS")
    assert str(refused.value) == words


def test_comments_and_empty_lines_name_no_file_and_digits_have_no_case() -> None:
    text = f"# of 2024\n\n   \n{'AB' * 32}  a\n"
    assert manifest.parse(text, url="s3://b/SUMS") == {"a": "ab" * 32}


def test_a_manifest_has_the_same_digest_with_its_lines_in_any_order() -> None:
    """Markers keep it: with another one, every data set with a manifest would be checked again."""
    expected = hashlib.sha256(f'[["a", "{SUM}"], ["b", "{SUM}"]]'.encode()).hexdigest()
    assert manifest.digest({"a": SUM, "b": SUM}) == manifest.digest({"b": SUM, "a": SUM}) == expected


def test_a_manifest_is_read_from_its_bucket(server: ObjectServer) -> None:
    server.objects["SUMS"] = f"{SUM}  a\n".encode()
    assert manifest.read("s3://datasets/SUMS", unsigned=False, region=None) == {"a": SUM}
    assert manifest.read("s3://datasets/SUMS", unsigned=True, region=None) == {"a": SUM}
    assert server.authorized == [True, False]


def test_what_is_no_text_is_no_manifest(server: ObjectServer) -> None:
    server.objects["SUMS"] = b"\xff\xfe"
    with pytest.raises(DatasetInvalid, match=r"Line 1 .*/SUMS .*'\ufffd\ufffd'.*digits"):
        manifest.read("s3://datasets/SUMS", unsigned=False, region=None)


def test_what_is_larger_than_any_manifest_is_not_read(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.objects["SUMS"] = f"{SUM}  a\n".encode()
    monkeypatch.setattr(manifest, "LARGEST_BYTES", 68)
    assert manifest.read("s3://datasets/SUMS", unsigned=False, region=None) == {"a": SUM}
    monkeypatch.setattr(manifest, "LARGEST_BYTES", 67)
    with pytest.raises(DatasetInvalid) as refused:
        manifest.read("s3://datasets/SUMS", unsigned=False, region=None)
    assert str(refused.value) == wording("manifest.what_is_larger_than_any_manifest_is_not_read", "68")


def test_a_manifest_that_is_not_there_is_named(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatasetNotFound) as missing:
        manifest.read("s3://datasets/SUMS", unsigned=False, region=None)
    assert str(missing.value) == wording("manifest.a_manifest_that_is_not_there_is_named.1", "'datasets'", "'SUMS'")
    with pytest.raises(ConfigInvalid) as other:
        manifest.read("https://example.com/SUMS", unsigned=False, region=None)
    assert str(other.value) == (
        wording("manifest.a_manifest_that_is_not_there_is_named.2", "manifest_url", "'https://example.com/SUMS'")
    )
    with pytest.raises(ConfigInvalid, match=r"--manifest_url .*'s3://datasets'.*/key\."):
        manifest.read("s3://datasets", unsigned=False, region=None)
    monkeypatch.setenv("AWS_PROFILE", "of-nobody")
    with pytest.raises(DatasetNotFound) as unread:
        manifest.read("s3://datasets/SUMS", unsigned=False, region=None)
    assert str(unread.value) == (wording("manifest.a_manifest_that_is_not_there_is_named.3", "endpoint", "credentials"))


def test_a_file_that_is_not_as_the_manifest_says_is_named_with_both_checksums() -> None:
    with pytest.raises(DatasetInvalid) as other:
        manifest.require({"a": SUM}, "a", "feed")
    assert str(other.value) == (
        f"The file 'a' has SHA-256 feed and the manifest says {SUM}; upload the file again, or correct the manifest."
    )
    with pytest.raises(DatasetInvalid) as more:
        manifest.require({"a": SUM}, "b", SUM)
    assert str(more.value) == (
        wording("manifest.a_file_that_is_not_as_the_manifest_says_is_named_with_both_checksums", "'b'")
    )
    manifest.require({"a": SUM}, "a", SUM)


def test_a_file_that_the_manifest_names_and_the_data_set_lacks_is_named() -> None:
    with pytest.raises(DatasetInvalid) as refused:
        manifest.require_all({"b": SUM, "a": SUM, "c": SUM}, {"c"}, url="s3://b/a.tar")
    assert str(refused.value) == (
        wording("manifest.a_file_that_the_manifest_names_and_the_data_set_lacks_is_named", "a.tar", "'a'")
    )
    manifest.require_all({"c": SUM}, {"c", "d"}, url="s3://b/a.tar")
