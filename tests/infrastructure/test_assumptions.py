"""docs/assumptions.md: what the product states about AWS, EKS and Neuron, and what checks each statement."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import rehearsal
from benchmarks.rehearsal import Assumption, missing_tests, parse
from benchmarks.result import BenchmarkFailed

LEAST_SHARE_CHECKED_BY_A_TEST = 0.7

TABLE = """
| statement | source | test |
|---|---|---|
| A cell may hold a \\| sign. | EKS user guide, 10/2026 | `tests/unit/a.py::test_b`, `tests/unit/a.py::test_c` |
| Nothing is known of this. | — | — |
"""


def test_no_statement_is_without_a_source_or_a_test_and_most_have_a_test() -> None:
    ratios = rehearsal.run().ratios

    assert ratios["by_nothing"] == 0
    assert ratios["checked_by_a_test"] >= LEAST_SHARE_CHECKED_BY_A_TEST


def test_no_statement_is_made_twice() -> None:
    statements = [assumption.statement for assumption in parse(rehearsal.TABLE.read_text(encoding="utf-8"))]

    assert sorted(statements) == sorted(set(statements))


def test_a_row_is_a_statement_with_its_source_and_its_tests() -> None:
    assert parse(TABLE) == [
        Assumption(
            statement="A cell may hold a \\| sign.",
            source="EKS user guide, 10/2026",
            tests=(("tests/unit/a.py", "test_b"), ("tests/unit/a.py", "test_c")),
        ),
        Assumption(statement="Nothing is known of this.", source=None, tests=()),
    ]


def test_a_test_that_does_not_exist_is_named() -> None:
    here = "tests/infrastructure/test_assumptions.py"
    assumption = Assumption(
        statement="It holds.",
        source=None,
        tests=((here, "test_a_test_that_does_not_exist_is_named"), (here, "test_gone"), ("tests/test_no.py", "test_a")),
    )

    assert missing_tests([assumption]) == [f"{here}::test_gone", "tests/test_no.py::test_a"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("| Two cells. | — |", "has 2 cells instead of 3: Two cells."),
        ("| No date. | EKS user guide | — |", "does not say when it was read: EKS user guide"),
        ("| No test. | — | some test |", "names no test as `tests/FILE.py::NAME`: some test"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_with_its_fault(row: str, complaint: str) -> None:
    with pytest.raises(BenchmarkFailed) as failure:
        parse(f"| statement | source | test |\n|---|---|---|\n{row}\n")

    assert str(failure.value).endswith(complaint)


@given(st.text())
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    with contextlib.suppress(BenchmarkFailed):
        parse(text)
