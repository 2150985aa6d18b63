"""A pattern is proposed for lines that look like progress and are not read."""

from __future__ import annotations

import re

import pytest

from trainflow.progress.pattern_proposal import proposed_pattern


@pytest.mark.parametrize(
    ("lines", "step"),
    [
        (["tick 1 kimg 0.5 time 3s", "note", "tick 2 kimg 1.5 time 3s"], "2"),
        (["2026-11-21 12:00:01 seen=1,000 of 5,000", "2026-11-21 12:00:02 seen=2,000 of 5,000"], "2,000"),
    ],
)
def test_a_pattern_is_proposed_for_a_number_that_rises(lines: list[str], step: str) -> None:
    pattern = proposed_pattern(lines)
    assert pattern is not None
    found = re.search(pattern, lines[-1])
    assert found is not None
    assert found["step"] == step


def test_a_loss_behind_the_number_is_a_part_of_the_pattern() -> None:
    pattern = proposed_pattern(["tick 1 q_loss=0.5", "tick 2 q_loss=0.25"])
    assert pattern is not None
    found = re.search(pattern, "tick 7 q_loss=1e-3")
    assert found is not None
    assert (found["step"], found["loss"]) == ("7", "1e-3")


@pytest.mark.parametrize("lines", [[], ["tick 1"], ["tick 2", "tick 1"], ["12:00:01 x", "12:00:02 x"]])
def test_no_pattern_is_proposed_without_a_rising_number(lines: list[str]) -> None:
    assert proposed_pattern(lines) is None
