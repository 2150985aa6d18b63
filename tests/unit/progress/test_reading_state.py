"""The reader reports whether it reads steps now, and proposes a pattern for lines that it does not read."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from trainflow.progress.reader import ProgressReader
from trainflow.progress.reading_state import ReadingState, proposed_pattern
from trainflow.workflow.log_line import LogLine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def state_after(*lines: str) -> ReadingState:
    reader = ProgressReader("auto")
    for line in lines:
        reader.read(LogLine(NOW, line))
    return reader.reading_state()


def test_lines_since_the_newest_step_are_counted() -> None:
    step = '{"step": 1, "loss": 2.0}'
    assert state_after("a", step, "b", "c") == ReadingState(1, 4, 2, (), None)
    assert state_after("a", step).lines_since_step == 0
    assert state_after("a", "b").lines_since_step == 2


def test_the_last_lines_with_digits_are_shown_without_colours() -> None:
    lines = [*(f"tick {n}" for n in range(9)), "no digits", "\x1b[31mtick 9\x1b[0m", "bar 1\rbar 2"]
    assert state_after(*lines).unmatched == ("tick 8", "tick 9", "bar 2")


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
