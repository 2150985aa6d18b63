"""Links between the documents lead somewhere, and both indexes are complete."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from local.twin import REPOSITORY
from tests.documents import documents
from tests.every import hold_for_every

DOCS = REPOSITORY / "docs"
DECISIONS = DOCS / "decisions"
PAGES = [*documents(), *(REPOSITORY / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")
STATUS = re.compile(r"accepted|(?:amended|superseded) by \[(\d+)\]\([\w-]+\.md\)")
DECISION = re.compile(r"(?:\b[Dd]ecisions? |docs/decisions/)(\d+(?:(?:, | and )\d+)*)")
"""One decision or several: `Decisions 19, 56 and 65`."""
GOVERNED = (
    "lambdas",
    "local",
    "packages/kubetwin/kubetwin",
    "runs",
    "stacks",
    "statemachines",
    "tests/asl",
    "trainer",
    "trainflow",
)
MAX_LINES = 95
"""Two screens."""


def anchor(heading: str) -> str:
    """Anchor of a heading, in GitHub's form."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_links_lead_to_files_and_headings_that_exist() -> None:
    hold_for_every(
        _leads_somewhere,
        (
            (page.relative_to(REPOSITORY), target)
            for page in PAGES
            for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        ),
    )


def _leads_somewhere(page: Path, target: str) -> None:
    file, _, heading = target.partition("#")
    found = (REPOSITORY / page).parent / file if file else REPOSITORY / page
    assert found.exists(), "no such file"
    assert not heading or heading in anchors(found), "no such heading"


def test_every_page_is_in_the_index() -> None:
    listed = re.findall(r"^\* \[[^\]]+\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md") if path.name != "README.md")


def test_every_decision_is_in_its_index_with_its_title_and_status() -> None:
    rows = re.findall(
        r"^\| \[(\d+)\]\(([^)]+)\) \| (.+?) \| (.+?) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE
    )
    assert [(name, f"# {number}. {title}") for number, name, title, _ in rows] == [
        (path.name, path.read_text().partition("\n")[0]) for path in sorted(DECISIONS.glob("0*.md"))
    ]
    assert [(number, status) for number, _, _, status in rows if not STATUS.fullmatch(status)] == []


def test_the_code_that_a_decision_governs_names_it() -> None:
    numbers = {int(path.name[:4]) for path in DECISIONS.glob("0*.md")}
    sources = [
        REPOSITORY / "pyproject.toml",
        *(path for folder in GOVERNED for path in (REPOSITORY / folder).rglob("*")),
    ]
    named = {
        (str(path.relative_to(REPOSITORY)), int(number))
        for path in sources
        if path.suffix in (".py", ".yaml", ".toml", ".js")
        for numbered in DECISION.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+", numbered)
    }
    assert [(path, number) for path, number in sorted(named) if number not in numbers] == []
    assert numbers - {number for _, number in named} == set(), "no code names these: write `# Decision N: reason`"


@pytest.mark.parametrize("page", ["README.md", "docs/twin.md"])
def test_a_page_for_every_user_is_at_most_two_screens(page: str) -> None:
    assert len((REPOSITORY / page).read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_the_newest_entry_of_the_changelog_is_the_version_of_the_package() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\S+)", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version
