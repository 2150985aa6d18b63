"""A recovered run says what its restarts have cost, in one sentence for every surface."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.logic.messages import message
from lambdas.logic.step_metrics import advanced, next_batch
from tests.wording import wording
from trainflow.cli.operate.shown import details_json, details_text
from trainflow.client.observe.training_log import TrainingLog
from trainflow.observed.run_state import RunState, recorded_state
from trainflow.observed.step import Step
from trainflow.page.view import figures
from trainflow.protocol.restart_line import Restarted, restarted_line
from trainflow.record.restarts import all_restarts
from trainflow.record.restarts_in_words import restarts_in_words
from trainflow.record.situation import situation
from trainflow.report.page import render_report
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.restart import Restart
from trainflow.workflow.run import MetricsCursor, StepsAgain
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def restart(minutes: float = 0, **fields: Any) -> Restart:
    given = {"stage": "training", "attempt": 1, "error": "NodeLost", "message": "gone", **fields}
    return Restart(at=NOW + timedelta(minutes=minutes), **given)


@pytest.mark.parametrize(
    ("restarts", "avoided", "sentence"),
    [
        ([restart()], (), "Restarted 1 time after NodeLost."),
        ([restart(node="a")], ("a",), "Restarted 1 time after NodeLost; lost a; avoided a."),
        ([restart(error="WorkerFailed", node="a")], (), "Restarted 1 time after WorkerFailed."),
        ([restart(in_place=True)], (), "Restarted 1 time after NodeLost in its pods."),
        (
            [restart(in_place=True), restart(error="JobStalled")],
            (),
            wording("restarts_in_words.restarts_are_one_sentence.1", "NodeLost", "JobStalled"),
        ),
        (
            [restart(last_step=1500, next_step=1401)],
            (),
            wording("restarts_in_words.restarts_are_one_sentence.2", "NodeLost", "1,500", "1,401"),
        ),
        (
            [restart(last_step=9 * n, next_step=8 * n) for n in range(1, 6)],
            (),
            wording("restarts_in_words.restarts_are_one_sentence.3", "NodeLost", "27", "24", "36"),
        ),
    ],
)
def test_restarts_are_one_sentence(restarts: list[Restart], avoided: tuple[str, ...], sentence: str) -> None:
    assert restarts_in_words(restarts, avoided) == sentence


def again(minutes: float, newest: int, first: int) -> StepsAgain:
    return StepsAgain(at=NOW + timedelta(minutes=minutes), newest_step=newest, first_step=first)


def test_each_restart_has_the_step_that_came_before_the_next_one() -> None:
    found = all_restarts([restart(0), restart(10), restart(20)], [], [again(11, 40, 31), again(25, 60, 51)])
    assert [(each.last_step, each.next_step) for each in found] == [(None, None), (40, 31), (60, 51)]


def step(number: int) -> str:
    return f"LOG Fri Nov 27 12:00:00 2026 - (0, {number}) step_loss : 9.0 learning_rate : 1.00e-04 throughput : 64.00"


def plain(number: int) -> str:
    return f"step {number} loss 0.5"


RESTARTED = restarted_line(Restarted(attempt=1, round=1, node=0, reason="signal 9 (SIGKILL)"))
AGAIN = restarted_line(Restarted(attempt=1, round=2, node=0, reason="signal 9 (SIGKILL)"))

LOGS = [
    ([], []),
    ([*range(1, 16)], []),
    ([1, 2, 3, RESTARTED, 4, 5], []),
    ([1, 2, 3, RESTARTED, 1, 2, 3, 4], [(3, 1)]),
    ([1, 2, 3, RESTARTED, 2, AGAIN, 1, 2, 3], [(3, 2), (3, 1)]),
    ([1, 2, 3, RESTARTED], []),
    ([RESTARTED, 1, 2], []),
    ([10, 20, 30, RESTARTED, 25, 30, 35], [(30, 25)]),
    ([1, 2, 3, 2, 4], []),  # a program that logs a lower step of itself
]


@pytest.mark.parametrize("poll", [1, 2, 3, 5, 7, 99])
@pytest.mark.parametrize("written", [step, plain])
@pytest.mark.parametrize(("log", "found"), LOGS)
def test_the_steps_of_before_a_restart_are_found_wherever_a_poll_ends(
    log: list[int | str], found: list[tuple[int, int]], written: Any, poll: int
) -> None:
    lines = [
        LogLine(NOW + timedelta(seconds=at), each if isinstance(each, str) else written(each))
        for at, each in enumerate(log)
    ]
    cursor = MetricsCursor()
    for begin in range(0, len(lines), poll):
        cursor = advanced(cursor, next_batch(lines[begin : begin + poll], cursor), log=None, now=NOW)
    assert [(each.newest_step, each.first_step) for each in cursor.steps_again] == found


@pytest.mark.parametrize("written", [step, plain])
@pytest.mark.parametrize(("log", "found"), LOGS)
def test_a_view_that_follows_the_log_finds_the_same(log: list[int | str], found: list[Any], written: Any) -> None:
    training = TrainingLog(dict)
    for at, each in enumerate(log):
        training.read(LogLine(NOW + timedelta(seconds=at), each if isinstance(each, str) else written(each)), "p")
    assert [(each.newest_step, each.first_step) for each in training.steps_again()] == found
    assert len(training.restarts()) == sum(isinstance(each, str) for each in log)


def test_the_first_step_of_the_next_job_is_compared() -> None:
    cursor = advanced(MetricsCursor(), next_batch([LogLine(NOW, step(9))], MetricsCursor()), log=None, now=NOW)
    later = next_batch([LogLine(NOW, step(5))], cursor, is_new_log=True)
    (found,) = advanced(cursor, later, log=None, now=NOW).steps_again
    assert (found.newest_step, found.first_step) == (9, 5)
    training = TrainingLog(dict)
    for number, pod in ((8, "a"), (9, "a"), (5, "b")):
        training.read(LogLine(NOW, plain(number)), pod)
    assert [(each.newest_step, each.first_step) for each in training.steps_again()] == [(9, 5)]


RESTARTS = [restart(node="node-b", last_step=40, next_step=31)]
SENTENCE = "Restarted 1 time after NodeLost; lost node-b; the step went back from 40 to 31; avoided node-b."


def record(status: RunStatus, **fields: Any) -> RunRecord:
    return RunRecord(
        run_id="a",
        status=status,
        spec={},
        started_at=NOW,
        ended_at=NOW + timedelta(hours=1),
        restarts=RESTARTS,
        avoided_nodes=["node-b"],
        **fields,
    )


FAILED = RunError(name="OutOfMemory", message="A pod needed more memory.", what_to_do="Ask for more.")


@pytest.mark.parametrize(("status", "error"), [(RunStatus.SUCCEEDED, None), (RunStatus.FAILED, FAILED)])
def test_every_surface_of_a_run_that_ended_has_the_sentence(status: RunStatus, error: RunError | None) -> None:
    ended = record(status, error=error)
    state = recorded_state(json.loads(ended.model_dump_json()))
    assert SENTENCE in details_text(state, NOW)
    assert details_json(state)["restarts"][0]["next_step"] == 31
    assert details_json(state)["avoided_nodes"] == ["node-b"]
    assert [figure.note for figure in figures(state, None) if figure.label == "Restarts"] == [SENTENCE]
    assert SENTENCE in render_report(ended, [])
    mail = message(
        "a", status, arn="arn:aws:states:us-west-2:1:execution:m:a", error=error, progress=None, artifacts=None,
        folder=None, record=ended,
    )  # fmt: skip
    assert SENTENCE in mail


def test_a_run_that_trains_again_remembers() -> None:
    newest = Step(logged_at=NOW, epoch=None, step=41, loss=1.0, learning_rate=None, throughput=None)
    now = RunState(
        run_id="a",
        status=RunStatus.RUNNING,
        observed_at=NOW,
        state="WatchTraining",
        restarts=tuple(RESTARTS),
        avoided_nodes=("node-b",),
    )
    assert situation(now).headline == "Recovering"
    later = replace(now, steps=(replace(newest, logged_at=NOW + timedelta(minutes=1)),))
    assert (situation(later).headline, situation(later).sentence) == ("Training", SENTENCE)
