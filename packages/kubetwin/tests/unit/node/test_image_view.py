"""The part of the machine's file system that a container sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubetwin.node.image_view import secrets_of_owner, visible, way


def test_the_way_to_a_path_has_its_links_and_where_it_leads(tmp_path: Path) -> None:
    place = tmp_path.resolve()
    (place / "real/inner").mkdir(parents=True)
    (place / "link").symlink_to("real")
    (place / "real/other").symlink_to(place / "link/inner")
    assert way(place / "link/other") == [
        *(str(place / name) for name in ("link", "real/other", "link")),
        str(place / "real/inner"),
    ]
    assert way(place / "real/../real/inner") == [str(place / "real/inner")]


def test_a_link_to_itself_leads_nowhere_and_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert way(tmp_path / "loop")[-1].endswith("loop")


@pytest.mark.parametrize(
    ("shown", "hidden", "mounted", "expected"),
    [
        pytest.param(["/a", "/a/b"], [], [], (["/a"], []), id="inside of what is seen"),
        pytest.param(["/a"], ["/a/h", "/b"], [], (["/a"], ["/a/h"]), id="only what would be seen is hidden"),
        pytest.param(["/a", "/a/h/s"], ["/a/h"], [], (["/a", "/a/h/s"], ["/a/h"]), id="the longest path decides"),
        pytest.param(["/a"], ["/a"], [], (["/a"], []), id="seen, although hidden"),
        pytest.param(["/tmp", "/tmp/co"], [], ["/tmp"], (["/tmp/co"], []), id="below a mount"),
        pytest.param(["/a/b"], ["/a"], [], (["/a/b"], []), id="in a hidden folder"),
        pytest.param(["/a/bc"], ["/a/b"], [], (["/a/bc"], []), id="beside a hidden folder"),
    ],
)
def test_of_all_paths_around_a_file_the_longest_decides(
    shown: list[str], hidden: list[str], mounted: list[str], expected: tuple[list[str], list[str]]
) -> None:
    assert visible(shown, hidden, mounted) == expected


def test_secrets_are_dot_entries_of_the_home_and_data_of_version_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".aws", "work/.git", "work/.env", "documents"):
        (tmp_path / name).mkdir(parents=True)
    found = {path for path in secrets_of_owner([str(tmp_path / "work")]) if path.startswith(str(tmp_path.resolve()))}
    assert found == {str(tmp_path / ".aws"), str(tmp_path / "work/.git")}
