"""A marker says what a folder holds, and of which folder it says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainer.staging import marker
from trainer.staging.marker import Marker

SAID = Marker(url="s3://b/a.tar", etag="e", files=2, bytes=3, num_shards=None, num_samples=None, sha256="feed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of three bytes, a link, and the marker of an earlier version."""
    folder = tmp_path / "demo"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(b"1")
    (folder / "deep" / "b").write_bytes(b"22")
    (folder / "link").symlink_to("a")
    (folder / "deep" / "linked").symlink_to(".")
    (folder / "deep" / marker.INSIDE).write_text("{}")
    return folder


def test_a_marker_is_a_document_that_people_can_read_and_names_the_folder_that_it_is_about(folder: Path) -> None:
    marker.write(SAID, folder, path := marker.marker_path(folder))
    assert path == folder.parent / ".demo.ready"
    assert marker.read(folder) == SAID
    text = path.read_text()
    assert text.startswith('{\n  "url": "s3://b/a.tar",\n') and text.endswith("}\n")
    assert json.loads(text)["inode"] == folder.stat().st_ino
    assert marker.is_about(path, folder)
    assert not marker.is_about(path, folder / "deep")
    assert not marker.is_about(path, folder / "missing")
    assert not marker.is_about(folder.parent / "missing", folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"url"', "{}", '{"url": "s3://b/a.tar"}', "\xff"])
def test_what_is_no_marker_says_nothing(folder: Path, text: str) -> None:
    (path := marker.marker_path(folder)).write_bytes(text.encode("latin-1"))
    assert marker.read_file(path) is None
    assert marker.read(folder) is None
    assert not marker.is_about(path, folder)


def test_a_marker_of_another_version_is_read_as_far_as_it_is_known(folder: Path) -> None:
    """A later version may have added a field, and an earlier one had none of the optional ones."""
    said = {"url": "u", "etag": "e", "files": 1, "bytes": 2, "num_shards": 3, "num_samples": 4}
    marker.marker_path(folder).write_text(json.dumps({**said, "colour": "red"}))
    assert marker.read(folder) == Marker(
        url="u", etag="e", files=1, bytes=2, num_shards=3, num_samples=4, sha256=None, manifest=None, verified=None
    )


def test_a_marker_without_its_folder_says_nothing(folder: Path) -> None:
    marker.write(SAID, folder, marker.marker_path(folder))
    folder.rename(folder.with_name("moved"))
    assert marker.read(folder) is None


def test_markers_and_links_are_no_files_of_the_data_set(folder: Path) -> None:
    assert marker.inventory(folder) == (2, 3)
    assert marker.is_complete(folder, SAID)
    assert not marker.is_complete(folder, replace(SAID, files=3))
    assert not marker.is_complete(folder, replace(SAID, bytes=4))
    assert marker.inventory(folder / "missing") == (0, 0)


def test_a_marker_among_the_files_moves_beside_them_when_it_is_written_again(folder: Path) -> None:
    (folder / marker.INSIDE).write_text("{}")
    assert marker.is_inside(folder)
    marker.keep(SAID, folder)
    assert marker.read_file(marker.marker_path(folder)) == SAID
    assert not (folder / marker.INSIDE).exists()
    assert not marker.is_inside(folder)


def test_a_file_of_the_markers_name_is_not_taken_for_one_where_a_marker_lies_beside(folder: Path) -> None:
    marker.keep(SAID, folder)
    (folder / marker.INSIDE).write_text("of somebody else")
    assert not marker.is_inside(folder)
    marker.keep(SAID, folder)
    assert (folder / marker.INSIDE).exists()
