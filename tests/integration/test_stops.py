"""A run is stopped while one of its functions works, in AWS's order of events: clean-up runs while the function goes
on, and may have ended before it acts. Nothing is left."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from benchmarks.fault_injection import TASK_FUNCTIONS, Mail, Plan, twin_with
from benchmarks.many_runs import await_all, left_in_cluster, start_all
from local.aws import deployment
from local.aws.faults import Fault
from local.place import TwinRuns
from local.twin import Twin
from tests.integration.test_runs import assert_nothing_is_left, demo_spec, steps_spec
from tests.waiting import wait_until
from trainflow.record.history import arn_of_execution

WITH_GRAPHS = {"StageData", "AcquireCache", "SubmitJob precompile", "PollJob precompile", "CheckCompilation"}
"""Calls of runs with data and graphs of their own; the others are those of a program that logs steps."""
FAILING = {"CollectDiagnostics"}
CALLS = sorted(
    (TASK_FUNCTIONS - {"SubmitJob", "PollJob"})
    | {f"{name} {stage}" for name in ("SubmitJob", "PollJob") for stage in ("precompile", "training")}
)
"""A function, and of those that are called for each stage, the stage."""


class StopWhileItWorks:
    """A plan in which the execution of a run stops once a certain call of it has begun. The call itself goes well."""

    def __init__(self, twin: Twin, run_id: str, call: str) -> None:
        assert twin.deployment is not None
        self._arn = arn_of_execution(twin.deployment.address.state_machine_arn, run_id)
        self._sfn, self._lock = twin.client("stepfunctions"), threading.Lock()
        self._run_id = run_id
        self._function, _, self._stage = call.partition(" ")
        self.has_stopped = False

    def __call__(self, function: str, event: Any) -> Fault | None:
        text = json.dumps(event)
        of_stage = not self._stage or f'"stage": "{self._stage}"' in text
        if function == self._function and self._run_id in text and of_stage:
            with self._lock:
                is_first, self.has_stopped = not self.has_stopped, True
            if is_first:
                self._sfn.stop_execution(executionArn=self._arn, error="Stopped", cause="On request.")
        return None


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan()


@pytest.fixture(scope="module")
def twin(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with twin_with(plan, tmp_path_factory.mktemp("twin"), time_scale=100) as running:
        yield running


def spec_that_reaches(call: str) -> dict[str, Any]:
    if call in WITH_GRAPHS:
        return demo_spec(variant=CALLS.index(call))
    if call in FAILING:
        return steps_spec(max_steps=3, dies_by_signal_at=3) | {"limits": {"max_restarts": 0}}
    return steps_spec(max_steps=3)


def messages_after(call: str) -> list[list[str]]:
    """What people may be told.

    A run that stops before it has a row in the run table has told nobody that it began: it may end without a message,
    too. One that stops while it says that it has succeeded has done both.
    """
    match call:
        case "ValidateRun":
            return [[], ["ABORTED"]]
        case "Notify":
            return [["ABORTED", "SUCCEEDED"]]
        case _:
            return [["ABORTED"]]


def row_of(twin: Twin, run_id: str) -> Mapping[str, Any]:
    key = {"run_id": {"S": run_id}}
    found: Mapping[str, Any] = twin.client("dynamodb").get_item(TableName=deployment.RUN_TABLE, Key=key).get("Item", {})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_a_run_that_is_stopped_in_any_call_leaves_nothing(twin: Twin, plan: Plan, call: str) -> None:
    run_id = f"stop-{call.lower().replace(' ', '-')}-0aa"
    stopping, mail = StopWhileItWorks(twin, run_id, call), Mail(twin, run_id)
    with plan.replaced(stopping):
        ended = await_all(twin, start_all(twin, {run_id: spec_that_reaches(call)}), limit_seconds=120)
        assert stopping.has_stopped, "the call was reached"
        assert ended == {run_id: "ABORTED"}
        TwinRuns(twin).settle()
        wait_until(lambda: deployment.gang_nodes() == 0)
    assert left_in_cluster(twin) == []
    assert_nothing_is_left(twin, run_id)
    wait_until(lambda: row_of(twin, run_id).get("status") != {"S": "RUNNING"})
    told = sorted(subject.removeprefix(f"Trainflow: {run_id} ") for subject in mail.subjects())
    assert told in messages_after(call)
