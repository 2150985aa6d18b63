"""docs/twin.md: what it says the twin refuses is tested, and what it lets pass names what that could hide."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubetwin.resources import load_registry

from benchmarks.rehearsal import Assumption, missing_tests

STEP_FUNCTIONS = "tests/integration/test_step_functions_refusals.py"
PERMISSIONS = "tests/integration/test_permissions.py"
NAMED = re.compile(r"`(?P<file>[\w/]+\.py)?(?:::)?(?P<name>test_\w+)?`")
CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a section of the page."""

    section: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables() -> list[Table]:
    found = []
    for part in re.split(r"^## ", Path("docs/twin.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        section, _, text = part.partition("\n")
        for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
            header, _, *rows = (
                tuple(cell.strip() for cell in CELLS.split(line)[1:-1]) for line in block.strip().splitlines()
            )
            found.append(Table(section=section, header=header, rows=tuple(rows)))
    return found


REFUSES = {table.section: table for table in tables() if table.header[-1] == "test"}
LETS_PASS = {table.section: table for table in tables() if table.header[-1] == "what that could hide"}
KUBERNETES = "Kubernetes: what it refuses, and what it lets pass"
SECTIONS = (
    "Step Functions: what it refuses, and what it lets pass",
    "Lambda, queues and other services: what they refuse, and what they let pass",
    KUBERNETES,
    "What AWS refuses, here and there",
)


def named(section: str, cell: str) -> list[tuple[str, str]]:
    """File and function of each test of a cell; without a function where the cell names a whole file."""
    below = "packages/kubetwin/tests/" if section == KUBERNETES else ""

    def path(file: str) -> str:
        return file if file.startswith("tests/") else below + file

    without = STEP_FUNCTIONS if section.startswith("Step Functions") else PERMISSIONS
    found = (match for match in NAMED.finditer(cell) if match["file"] or match["name"])
    return [(path(match["file"]) if match["file"] else without, match["name"] or "") for match in found]


def test_each_section_has_both_tables() -> None:
    assert list(REFUSES) == list(LETS_PASS) == list(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_refusal_names_tests_that_exist(section: str) -> None:
    rows = {row[0]: named(section, row[-1]) for row in REFUSES[section].rows}
    assert len(rows) == len(REFUSES[section].rows), "no refusal stands twice"
    assert [refusal for refusal, tests in rows.items() if not tests] == []
    every = [test for tests in rows.values() for test in tests]
    assert [file for file, _ in every if "def test_" not in _text(file)] == []
    functions = tuple((file, name) for file, name in every if name)
    assert missing_tests([Assumption(statement=section, source=None, tests=functions)]) == []


@pytest.mark.parametrize("section", SECTIONS)
def test_no_row_is_empty(section: str) -> None:
    for table in (REFUSES[section], LETS_PASS[section]):
        assert table.rows
        assert [row for row in table.rows if len(row) != len(table.header) or "" in row] == []


@pytest.mark.parametrize("kind", ["LimitRange", "Endpoints", "EndpointSlice"])
def test_a_kind_that_the_cluster_lacks_is_in_the_table_of_what_passes(kind: str) -> None:
    assert kind not in {resource.kind for resource in load_registry()}
    assert [row for row in LETS_PASS[KUBERNETES].rows if f"`{kind}`" in row[0]]


def _text(file: str) -> str:
    path = Path(file)
    return path.read_text(encoding="utf-8") if path.exists() else ""
