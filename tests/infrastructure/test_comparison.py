"""docs/comparison.md: what users expect, with a test for each place."""

from __future__ import annotations

from benchmarks.rehearsal import TEST, Assumption, missing_tests
from tests.documents import REPOSITORY

SECTION = "What is the same in both places"
LEAST_ROWS = 20
"""Things that users of other launchers expect."""


def rows() -> list[list[str]]:
    text = (REPOSITORY / "docs" / "comparison.md").read_text(encoding="utf-8")
    (section,) = (part for part in text.split("\n## ") if part.startswith(SECTION))
    _, _, *lines = (line for line in section.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_all_that_users_expect_is_tested_in_both_places() -> None:
    found = rows()
    assert len(found) >= LEAST_ROWS
    for expected, here, account in found:
        assert TEST.search(here), expected
        assert account == "the same test" or TEST.search(account), expected
    named = [
        Assumption(
            statement=row[0],
            source=None,
            tests=tuple((match["file"], match["name"]) for cell in row for match in TEST.finditer(cell)),
        )
        for row in found
    ]
    assert missing_tests(named) == []
