"""Counts how many statements about AWS, EKS and Neuron have been checked, and by what."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.result import BenchmarkFailed, Result, this_machine

REPOSITORY = Path(__file__).parent.parent
TABLE = REPOSITORY / "docs" / "assumptions.md"

HEADER = ("statement", "source", "test")
NONE = "—"
"""Content of an empty cell."""

TEST = re.compile(r"`(?P<file>(?:packages/kubetwin/)?tests/[\w/]+\.py)::(?P<name>test_\w+)`")
YEAR = re.compile(r"\b20\d\d\b")


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One statement about an external system."""

    statement: str
    source: str | None
    """Document, place and month of the source; None without a source."""
    tests: tuple[tuple[str, str], ...]
    """File and function of each test that checks it."""


def run() -> Result:
    """Counts the statements by what checks them.

    Raises:
        BenchmarkFailed: If the table cannot be read, or names a test that does not exist.
    """
    assumptions = parse(TABLE.read_text(encoding="utf-8"))
    missing = missing_tests(assumptions)
    if missing:
        raise BenchmarkFailed(f"docs/assumptions.md names tests that do not exist: {', '.join(missing)}.")
    by_test = sum(bool(assumption.tests) for assumption in assumptions)
    by_source = sum(not assumption.tests and assumption.source is not None for assumption in assumptions)
    total = len(assumptions)
    return Result(
        benchmark="rehearsal",
        ratios={
            "checked_by_a_test": round(by_test / total, 3),
            "by_a_published_source_only": round(by_source / total, 3),
            "by_nothing": round((total - by_test - by_source) / total, 3),
        },
        seconds={},
        machine=this_machine(),
        details={
            "statements": total,
            "checked_by_a_test": by_test,
            "by_a_published_source_only": by_source,
            "by_nothing": total - by_test - by_source,
        },
    )


def parse(text: str) -> list[Assumption]:
    """Every row of every table whose columns are statement, source and test.

    Raises:
        BenchmarkFailed: If a row has other than three cells, the year of a source is missing, or rows are missing.
    """
    assumptions, inside = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))
        if cells == HEADER:
            inside = True
        elif inside and not set("".join(cells)) <= set("-: "):
            assumptions.append(_assumption(cells))
    if not assumptions:
        raise BenchmarkFailed("docs/assumptions.md has no table with the columns statement, source and test.")
    return assumptions


def missing_tests(assumptions: Sequence[Assumption]) -> list[str]:
    """The tests that the table names and the repository lacks, as `file::name`."""
    named = {test for assumption in assumptions for test in assumption.tests}
    return sorted(f"{file}::{name}" for file, name in named if name not in _tests_in(REPOSITORY / file))


def _assumption(cells: tuple[str, ...]) -> Assumption:
    if len(cells) != len(HEADER):
        raise BenchmarkFailed(f"A row of docs/assumptions.md has {len(cells)} cells instead of 3: {cells[0]}")
    statement, source, tests = cells
    if source != NONE and not YEAR.search(source):
        raise BenchmarkFailed(f"This source in docs/assumptions.md does not say when it was read: {source}")
    found = tuple((match["file"], match["name"]) for match in TEST.finditer(tests))
    if not found and tests != NONE:
        raise BenchmarkFailed(f"This cell of docs/assumptions.md names no test as `tests/FILE.py::NAME`: {tests}")
    return Assumption(statement=statement, source=None if source == NONE else source, tests=found)


@lru_cache
def _tests_in(file: Path) -> frozenset[str]:
    """Names of the test functions of a file; none if it does not exist."""
    if not file.exists():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
