"""docs/architecture.md says where to begin a change: each file exists and holds the word that the row names."""

from __future__ import annotations

import re
from pathlib import Path

from tests.every import hold_for_every

PAGE = Path("docs/architecture.md")
HEADING = "\n## I want to change …\n"
COLUMNS = ["change", "open", "also", "checked by"]
LEAST_ROWS = 15
FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`(?: \((?:`([^`]+)`)?)?")
"""A path, and the word behind it in parentheses."""
SUFFIXES = (".py", ".md", ".json", ".toml", ".yaml")


def rows() -> list[list[str]]:
    """Cells of each row, the header included."""
    section = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    cells = [re.split(r"(?<!`)\|(?!`)", line)[1:-1] for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in cells]


def test_the_table_has_a_row_for_each_common_change() -> None:
    header, _, *changes = rows()
    assert header == COLUMNS
    assert len({row[0] for row in changes}) == len(changes) >= LEAST_ROWS
    assert [row[0] for row in changes if len(row) != len(COLUMNS) or not row[1] or not row[3]] == []


def test_every_file_exists_and_holds_the_word_of_its_row() -> None:
    hold_for_every(
        _holds, ((row[0], path, word) for row in rows()[2:] for path, word in FILE.findall(" ".join(row[1:])))
    )


def _holds(_change: str, path: str, word: str) -> None:
    if path.endswith("/") and not word:
        assert Path(path).is_dir(), "no such folder"
    elif path.endswith("/"):
        assert any(word in file.read_text(encoding="utf-8") for file in Path(path).iterdir() if file.is_file())
    elif "/" in path or path == "pyproject.toml":
        assert Path(path).is_file(), "no such file"
        assert word, "no word in parentheses behind it"
        assert word in Path(path).read_text(encoding="utf-8"), "the word is not in it"


def test_contributors_are_led_to_the_one_table() -> None:
    assert "docs/architecture.md#i-want-to-change-" in Path("CONTRIBUTING.md").read_text(encoding="utf-8")
