"""The names of figures, whatever program prints them."""

from __future__ import annotations

import pytest

from trainflow.protocol.metric_aliases import (
    LARGEST_STEP,
    LONGEST_NUMBER,
    MAX_METRICS,
    MAX_NAME_LENGTH,
    by_meaning,
    number,
    whole,
)


def test_of_several_names_with_one_meaning_the_first_in_the_table_counts() -> None:
    said = {"train/loss": 3.0, "Loss": 2.0, "lr": 0.1, "global_step": 7}
    assert by_meaning(said) == {"train/loss": 3.0, "loss": 2.0, "learning_rate": 0.1, "step": 7}


def test_names_without_a_meaning_are_kept_as_far_as_cloudwatch_takes_them() -> None:
    said = {"  eval: top 5  ": 1.0, "x" * 120: 2.0, "***": 3.0, "Eval-Score/a.b_c": 4.0, "eval:top 5": 5.0}
    assert by_meaning(said) == {"eval_top_5": 1.0, "x" * MAX_NAME_LENGTH: 2.0, "Eval-Score/a.b_c": 4.0}


def test_what_is_cut_from_a_name_is_its_end() -> None:
    assert by_meaning({"*" * 150 + "a" * 100: 1}) == {"a" * 50: 1}


def test_a_line_has_so_many_figures_and_no_more() -> None:
    assert list(by_meaning({f"figure_{index}": index for index in range(100)})) == [
        f"figure_{index}" for index in range(MAX_METRICS)
    ]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (1, 1.0),
        ("1e-3", 0.001),
        ("9" * LONGEST_NUMBER, float("inf")),
        ("9" * (LONGEST_NUMBER + 1), None),
        (True, None),
        ("many", None),
        (None, None),
        ([1], None),
        (10**400, None),
    ],
)
def test_a_figure_is_a_number(said: object, expected: float | None) -> None:
    assert number(said) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (0, 0),
        (99.0, 99),
        ("99.00", 99),
        (LARGEST_STEP, LARGEST_STEP),
        (LARGEST_STEP + 1, None),
        (-1, None),
        (0.5, None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_a_step_is_a_whole_number(said: object, expected: int | None) -> None:
    assert whole(said) == expected
