from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from recorded_runs import recorded

from trainflow.record.history import ExecutionHistory, child_arns, current_state, task_output, visits
from trainflow.workflow.run_record import RunStatus

ARN = "arn:aws:states:us-east-1:123456789012:execution:machine:run-1"


def history(*events: tuple[str, int, dict[str, Any]]) -> ExecutionHistory:
    start = datetime(2026, 11, 21, tzinfo=UTC)
    return ExecutionHistory(
        arn=ARN,
        events=tuple(
            {"id": number, "type": kind, "previousEventId": previous, "timestamp": start + timedelta(seconds=number)}
            | details
            for number, (kind, previous, details) in enumerate(events, start=1)
        ),
    )


def entered(name: str) -> dict[str, Any]:
    return {"stateEnteredEventDetails": {"name": name}}


def exited(name: str) -> dict[str, Any]:
    return {"stateExitedEventDetails": {"name": name}}


def test_a_loop_appears_as_several_visits() -> None:
    run = recorded("succeeded")

    names = [visit.name for visit in visits(run.history)]

    assert names.count("StageData") == 3
    assert names[:5] == ["ValidateRun", "Preflight", "IsPreflightDone", "WaitForPreflight", "Preflight"]
    assert names[-1] == "RunSucceeded"


def test_attempts_count_every_try_of_the_visit_and_only_of_that_visit() -> None:
    stays = [visit for visit in visits(recorded("succeeded").history) if visit.name == "EnsureCapacity"]

    assert [stay.attempts for stay in stays] == [1, 2]


def test_a_plain_lambda_resource_is_counted_like_the_optimised_integration() -> None:
    run = history(
        ("TaskStateEntered", 0, entered("Old")),
        ("LambdaFunctionScheduled", 1, {}),
        ("LambdaFunctionFailed", 2, {}),
        ("LambdaFunctionScheduled", 3, {}),
        ("LambdaFunctionSucceeded", 4, {"lambdaFunctionSucceededEventDetails": {"output": '{"graphs": 2}'}}),
        ("TaskStateExited", 5, exited("Old")),
    )

    assert [visit.attempts for visit in visits(run)] == [2]
    assert task_output(run, "Old") == {"graphs": 2}


def test_branches_of_a_parallel_state_are_distinguished_by_their_chain_of_events() -> None:
    run = history(
        ("ParallelStateEntered", 0, entered("Both")),
        ("ParallelStateStarted", 1, {}),
        ("TaskStateEntered", 2, entered("Left")),
        ("TaskStateEntered", 2, entered("Right")),
        ("TaskScheduled", 3, {}),
        ("TaskScheduled", 4, {}),
        ("TaskFailed", 6, {}),
        ("TaskScheduled", 7, {}),
        ("TaskStateExited", 8, exited("Right")),
        ("TaskStateExited", 5, exited("Left")),
        ("ParallelStateSucceeded", 10, {}),
        ("ParallelStateExited", 11, exited("Both")),
    )

    found = {visit.name: visit for visit in visits(run)}

    assert {name: visit.attempts for name, visit in found.items()} == {"Both": 1, "Left": 1, "Right": 2}
    assert all(visit.exited_at is not None for visit in found.values())
    assert found["Both"].exited_at == run.events[-1]["timestamp"]


def test_the_state_in_which_an_execution_was_aborted_has_no_exit() -> None:
    run = recorded("aborted")

    last = visits(run.history)[-1]

    assert (last.name, last.exited_at) == ("WaitForNodes", None)
    assert run.history.status is RunStatus.ABORTED
    assert run.history.ended_at == run.end


def test_the_final_fail_state_ends_with_its_execution() -> None:
    run = recorded("worker_failed")

    last = visits(run.history)[-1]

    assert (last.name, last.kind, last.exited_at) == ("RunFailed", "Fail", run.end)


def test_children_are_found_in_the_order_of_their_start_and_once_each() -> None:
    run = recorded("succeeded")

    assert child_arns(run.history) == [child.arn for child in run.children]


def test_a_lambdas_answer_comes_without_its_wrapping_and_the_last_one_counts() -> None:
    run = recorded("succeeded")

    assert task_output(run.history, "CheckCompilation") == {"graphs": 1, "succeeded": 1, "failed": 0, "cache": "miss"}
    assert task_output(run.history, "PublishArtifacts")["finished"] is True
    assert task_output(run.history, "NoSuchState") is None


def test_names_come_from_the_arn() -> None:
    run = recorded("succeeded").history

    assert (run.state_machine, run.name) == ("trainflow-training", "demo-3f2a9c1b4d5e")


def test_the_input_is_the_run_spec() -> None:
    assert recorded("succeeded").history.input()["name"] == "demo"


@pytest.mark.parametrize("num_events", [0, 1, 5, 60])
def test_every_prefix_of_a_history_can_be_read(num_events: int) -> None:
    whole = recorded("succeeded").history
    prefix = ExecutionHistory(arn=whole.arn, events=whole.events[:num_events])

    found = visits(prefix)

    assert prefix.status is RunStatus.RUNNING
    assert prefix.num_events == num_events
    assert sum(visit.exited_at is None for visit in found) <= 1
    assert (current_state(found) is None) == all(visit.exited_at for visit in found)
