"""A program that logs a step below the checkpoint that it was given has not continued from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from lambdas.logic.step_metrics import advanced, next_batch
from trainflow.protocol.checkpoint_line import resumed_line
from trainflow.record.restarts import ignored_warning
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import Ignored, MetricsCursor

NOW = datetime(2026, 11, 22, 8, tzinfo=UTC)


def read(*polls: Sequence[str]) -> MetricsCursor:
    cursor = MetricsCursor()
    for lines in polls:
        batch = next_batch([LogLine(NOW, line) for line in lines], cursor)
        cursor = advanced(cursor, batch, log=None, now=NOW)
        cursor = MetricsCursor.model_validate_json(cursor.model_dump_json())
    return cursor


def steps(*numbers: int) -> list[str]:
    return [f'{{"step": {number}, "loss": 0.5}}' for number in numbers]


BEGUN = steps(10, 20, 30, 40, 50)


@pytest.mark.parametrize("first", [1, 10, 39])
def test_a_restarted_program_that_begins_below_its_checkpoint_is_noticed_across_polls(first: int) -> None:
    again = [resumed_line(40), *steps(first, 60)]
    expected = Ignored(checkpoint=40, step=first)
    assert read([*BEGUN, *again]).ignored == expected
    assert read(BEGUN, again[:1], again[1:]).ignored == expected
    assert read(BEGUN, again, [resumed_line(60), *steps(61)]).ignored == expected, "a later restart hides nothing"


@pytest.mark.parametrize("first", [40, 41, 50, 60])
def test_a_program_that_continues_causes_no_warning(first: int) -> None:
    assert read(BEGUN, [resumed_line(40)], steps(first, 70)).ignored is None
    assert read([resumed_line(40), *steps(first)]).ignored is None


def test_the_warning_has_both_numbers_and_compares_no_step_with_a_time() -> None:
    ignored = Ignored(checkpoint=40, step=10)
    said = ignored_warning(ignored, "step-{step}.pt") or ""
    assert "the checkpoint of step 40" in said
    assert "was 10:" in said
    assert ignored_warning(ignored, "*.pt") is None
    assert ignored_warning(None, "step-{step}.pt") is None
