"""docs/security.md and SECURITY.md: each promise in them names the tests that hold it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.rehearsal import TEST, Assumption, missing_tests

PAGES = ("docs/security.md", "SECURITY.md")
PROMISING = {
    "docs/security.md": ("Promises", "What runs share", "The twin"),
    "SECURITY.md": ("What counts",),
}
"""Sections of which every row, paragraph and item promises something, but for these:"""
PROMISES_NOTHING = (
    "A run can harm another run of the same deployment",
    "* **Single pods.**",
    "* **Slurm.**",
    "* A client may leave the body of an upload to S3 unsigned",
    "A run executes the program that its spec names",
    "[docs/security.md](docs/security.md) says",
)
"""Beginnings of what limits the promises, or leads to them."""


def blocks(page: str) -> list[str]:
    """Rows of tables, list items and paragraphs of a page's sections that promise something."""
    found: list[str] = []
    for part in re.split(r"^## ", Path(page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        if title in PROMISING[page]:
            _, _, *rows = [line for line in text.splitlines() if line.startswith("|")] or ["", ""]
            prose = re.sub(r"^\|.*\n", "", text, flags=re.MULTILINE)
            found += [*rows, *(block.strip() for block in re.split(r"\n\n|\n(?=\* )", prose) if block.strip())]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_tests_that_exist(page: str) -> None:
    promises = [
        Assumption(
            statement=block,
            source=None,
            tests=tuple((match["file"], match["name"]) for match in TEST.finditer(block)),
        )
        for block in blocks(page)
        if not block.startswith(PROMISES_NOTHING)
    ]
    assert promises
    assert [promise.statement for promise in promises if not promise.tests] == []
    assert missing_tests(promises) == []


def test_what_promises_nothing_is_there_and_has_no_test() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    for beginning in PROMISES_NOTHING:
        [block] = [block for block in every if block.startswith(beginning)]
        assert not TEST.search(block), block


@pytest.mark.parametrize("page", PAGES)
def test_every_section_that_promises_is_there(page: str) -> None:
    titles = re.findall(r"^## (.*)$", Path(page).read_text(encoding="utf-8"), re.MULTILINE)
    assert [title for title in PROMISING[page] if title not in titles] == []
