"""Restarts in the pods are counted as those of the workflow are, each once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lambdas.logic.step_metrics import advanced, next_batch
from trainflow.protocol.restart_line import Restarted, restarted_line
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import MetricsCursor

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def step(number: int) -> str:
    return f"LOG Fri Nov 27 12:00:00 2026 - (0, {number}) step_loss : 9.0 learning_rate : 1.00e-04 throughput : 64.00"


def restart(number: int, attempt: int = 1) -> str:
    return restarted_line(Restarted(attempt=attempt, round=number, node=1, reason="signal 9 (SIGKILL)"))


def read(cursor: MetricsCursor, *texts: str) -> MetricsCursor:
    lines = [LogLine(NOW + timedelta(seconds=number), text) for number, text in enumerate(texts)]
    return advanced(cursor, next_batch(lines, cursor), log=None, now=NOW)


@pytest.mark.parametrize("polls", [1, 9])
@pytest.mark.parametrize(
    ("texts", "in_vain", "at_step"),
    [
        ([step(1), step(2)], 0, -1),
        ([restart(1)], 1, -1),
        ([step(1), restart(1)], 1, 1),
        ([step(1), restart(1), step(1), restart(2)], 2, 1),
        ([step(1), restart(1), step(1), step(2), restart(2)], 1, 2),
        ([step(3), restart(1), step(2), restart(2), restart(3)], 3, 3),
    ],
)
def test_a_restart_without_a_later_step_is_one_more_in_vain(
    texts: list[str], in_vain: int, at_step: int, polls: int
) -> None:
    cursor = MetricsCursor()
    for part in [texts] if polls == 1 else [[text] for text in texts]:
        cursor = read(cursor, *part)
    assert (cursor.restarts_in_vain, cursor.restarted_at_step) == (in_vain, at_step)
    assert len(cursor.in_place) == sum("restarted" in text for text in texts)


def test_lines_that_are_read_again_count_once() -> None:
    once = read(MetricsCursor(), step(1), restart(1))
    assert read(once, step(1), restart(1)).in_place == once.in_place
    assert read(once, restart(1)).restarts_in_vain == 1


def test_the_first_restart_of_a_later_job_is_another_one() -> None:
    cursor = read(MetricsCursor(restarts_in_vain=1, restarted_at_step=4), restart(1), restart(1, attempt=2))
    assert (cursor.restarts_in_vain, [each.attempt for each in cursor.in_place]) == (3, [1, 2])


def test_the_count_of_the_workflow_goes_on_in_the_pods() -> None:
    cursor = MetricsCursor(last_step=4, restarted_at_step=4, restarts_in_vain=1)
    assert read(cursor, step(4), restart(1)).restarts_in_vain == 2
    assert read(cursor, step(5), restart(1)).restarts_in_vain == 1


def test_a_restart_ends_a_hang() -> None:
    hang = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)"
    assert read(MetricsCursor(), hang).hang is not None
    assert read(MetricsCursor(), hang, restart(1)).hang is None
