"""A log that cannot be read switches the judgement of stalls off. The owner is told of it once, and the job goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from lambdas.handlers import notify
from lambdas.logic.unreachable import report_unreachable_at, report_unreadable_at, timestamp
from tests.asl.interpreter import MAX_EVENTS, Answer, Interpreter
from tests.fakes.runs import STARTED_AT, job_ref, run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, Aws
from trainflow.errors import ServiceUnavailable
from trainflow.observed.job import JobStatus
from trainflow.state_machines import definition
from trainflow.workflow.run import JobPhase, MetricsCursor, Stage

RUN = run_of(spec_with(limits={"blind_minutes": 60, "poll_seconds": 30}))
JOB = job_ref(RUN, Stage.TRAINING)
STATUS = JobStatus(phase=JobPhase.RUNNING, started_at=STARTED_AT)
WATCH = definition("watch_job")
NO_ANSWER = Answer(failure=("ClusterUnavailable", '{"errorType": "ClusterUnavailable", "errorMessage": "No answer."}'))

Minutes = Callable[[float], bool]
"""Whether something is so at a minute of the job's life."""


def never(_minute: float) -> bool:
    return False


@dataclass
class Job:
    """A job that runs for ever, and the functions that its windows call, by a clock of its own."""

    unreadable: Minutes
    unseen: Minutes = never
    speechless: Minutes = never
    """Whether no message can be sent."""
    now: datetime = STARTED_AT
    told_at: list[float] = field(default_factory=list)
    """Minutes at which Notify was called with success."""

    def minute(self) -> float:
        return (self.now - STARTED_AT) / timedelta(minutes=1)

    def entered_at(self, _state: str) -> str:
        return timestamp(self.now)

    def passes(self, state: str) -> None:
        waits = WATCH["States"][state]
        self.now += timedelta(seconds=waits.get("Seconds", RUN.spec.limits.poll_seconds))

    def answer(self, _resource: str, parameters: Any) -> Answer:
        payload, minute = parameters["Payload"], self.minute()
        match parameters["FunctionName"].strip("${}"):
            case "PollJob":
                return NO_ANSWER if self.unseen(minute) else Answer(result={"Payload": self._seen(payload)})
            case "LocateRank0":
                return NO_ANSWER if self.unreadable(minute) else Answer(result={"Payload": {"pod": "rank-0"}})
            case "PublishMetrics":
                if self.unreadable(minute):
                    return NO_ANSWER
                cursor = {**payload["cursor"], "read_at": timestamp(self.now)}
                read = {"cursor": cursor, "caught_up": True, "unpublished": False}
                return Answer(result={"Payload": read})
            case "Notify":
                if self.speechless(minute):
                    return Answer(failure=(ServiceUnavailable.__name__, "{}"))
                told = notify.lambda_handler(payload, CONTEXT)
                self.told_at.append(minute)
                return Answer(result={"Payload": told})
        raise AssertionError(parameters)

    def _seen(self, payload: Any) -> dict[str, Any]:
        limits, progress = RUN.spec.limits, MetricsCursor.model_validate(payload["progress"])
        return {
            "phase": "running",
            "wait_seconds": limits.poll_seconds,
            "blind_after": timestamp(report_unreachable_at(limits, now=self.now)),
            "unread_after": timestamp(report_unreadable_at(limits, STATUS, progress, now=self.now)),
            "warning": None,
        }


def watched(job: Job, *, windows: int = 1) -> int:
    """Watch the job for some windows; returns the most events of one."""
    given: dict[str, Any] = {
        "run": RUN.model_dump(mode="json"),
        "job": JOB.model_dump(mode="json"),
        "rank0": None,
        "phase": "running",
        "progress": MetricsCursor().model_dump(mode="json"),
        "blind_after": timestamp(report_unreachable_at(RUN.spec.limits, now=STARTED_AT)),
        "ends_by": timestamp(STARTED_AT + timedelta(days=3)),
        "limit": None,
        "told_blind": False,
        "spending": {},
        "warned": False,
    }
    longest = 0
    for number in range(windows):
        window = Interpreter(WATCH, execution={"Name": f"window-{number}", "Id": "arn:window"}, world=job)
        window.run(given)
        last = window.history[-1]
        assert last["type"] == "ExecutionSucceeded", last
        assert last["output"].pop("outcome") == "running", "the job goes on"
        given |= {name: value for name, value in last["output"].items() if name in given}
        longest = max(longest, len(window.history))
    return longest


def logs_told(aws: Aws) -> list[str]:
    return [message for subject, message in aws.messages if subject == f"Trainflow: {RUN.run_id} has no readable log"]


def test_the_owner_is_told_once_of_a_log_that_cannot_be_read_any_more(aws: Aws) -> None:
    job = Job(unreadable=lambda minute: minute > 30)
    watched(job, windows=3)
    assert 90 < job.told_at[0] < 92, "limits.blind_minutes after the last reading"
    assert len(job.told_at) == 3, "each window asks for the message"
    (text,) = logs_told(aws)
    _, what, done, do, *_ = text.splitlines()
    assert what == f"What happened: the log of the job '{JOB.name}' cannot be read: No answer."
    assert done.startswith("What was done: nothing was stopped. The job trains on, until 2026-11-24 12:00 UTC at most.")
    assert "cannot be told whether it hangs" in done
    assert do.startswith("What to do: Check that the cluster is ACTIVE")
    assert len(aws.messages) == 1


def test_the_owner_is_told_of_a_log_that_could_never_be_read(aws: Aws) -> None:
    job = Job(unreadable=lambda _: True)
    watched(job)
    assert 60 < job.told_at[0] < 62
    assert len(logs_told(aws)) == 1


def test_a_log_that_is_read_once_an_hour_is_told_of_to_nobody_and_one_that_breaks_off_again_is(aws: Aws) -> None:
    watched(Job(unreadable=lambda minute: minute % 55 > 1), windows=2)
    assert aws.messages == []
    job = Job(unreadable=lambda minute: not 100 < minute < 101)
    watched(job)
    assert [60 < job.told_at[0] < 62, 160 < job.told_at[1] < 162, len(job.told_at)] == [True, True, 2]
    assert len(logs_told(aws)) == 2, "each time has a message"


def test_an_outage_of_the_cluster_is_one_message_and_no_second_one_about_the_log(aws: Aws) -> None:
    def out(minute: float) -> bool:
        return 30 < minute < 150

    watched(Job(unreadable=lambda minute: 29 < minute < 150, unseen=out))
    ((subject, _),) = aws.messages
    assert subject == f"Trainflow: {RUN.run_id} cannot be seen"


def test_a_message_that_cannot_be_sent_is_tried_again_and_fills_no_history(aws: Aws) -> None:
    job = Job(unreadable=lambda _: True, speechless=lambda minute: minute < 180)
    assert watched(job) < 0.9 * MAX_EVENTS, "every lap with all its retries, and some with a message"
    assert 180 < job.told_at[0] < 192
    assert len(logs_told(aws)) == 1


@pytest.mark.parametrize("read_at", [None, STARTED_AT - timedelta(hours=9)])
def test_a_job_has_all_the_minutes_from_its_start(read_at: datetime | None) -> None:
    """What was read of the attempt before is long ago."""
    now = STARTED_AT + timedelta(minutes=5)
    found = report_unreadable_at(RUN.spec.limits, STATUS, MetricsCursor(read_at=read_at), now=now)
    assert found == STARTED_AT + timedelta(minutes=60)
