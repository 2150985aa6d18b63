"""RedriveExecution, which moto lacks: what Step Functions answers, and a stopped run that goes on by it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from benchmarks.many_runs import published_losses
from local.aws import deployment
from local.aws.redriving import MAX_OPEN, REDRIVABLE_FOR
from local.place import TwinRuns
from local.twin import Twin
from tests.integration.test_runs import assert_nothing_is_left, steps_spec
from tests.waiting import wait_until
from trainflow.cli.run import follow_to_end
from trainflow.record.steps import KeptSteps
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunError, RunStatus


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=100) as running:
        yield running


def started(twin: Twin, name: str, states: dict[str, Any]) -> str:
    """Start a state machine that begins with its first state, and return the execution's ARN."""
    sfn, role = twin.client("stepfunctions"), deployment_role(twin)
    document = json.dumps({"StartAt": next(iter(states)), "States": states})
    machine = sfn.create_state_machine(name=name, roleArn=role, definition=document)["stateMachineArn"]
    return str(sfn.start_execution(stateMachineArn=machine)["executionArn"])


def deployment_role(twin: Twin) -> str:
    """A role that Step Functions may assume."""
    return str(twin.client("iam").get_role(RoleName="trainflow-Training")["Role"]["Arn"])


def described(twin: Twin, arn: str) -> dict[str, Any]:
    found: dict[str, Any] = twin.client("stepfunctions").describe_execution(executionArn=arn)
    return found


def ended(twin: Twin, arn: str) -> dict[str, Any]:
    wait_until(lambda: described(twin, arn)["status"] != "RUNNING")
    return described(twin, arn)


def history(twin: Twin, arn: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = twin.client("stepfunctions").get_execution_history(executionArn=arn)["events"]
    return events


def redrive(twin: Twin, arn: str, **fields: Any) -> Any:
    return twin.client("stepfunctions").redrive_execution(executionArn=arn, **fields)["redriveDate"]


def test_an_execution_goes_on_in_the_state_in_which_it_was_stopped(twin: Twin) -> None:
    states: dict[str, Any] = {
        "Keep": {"Type": "Pass", "Assign": {"kept.$": "$.m"}, "Result": {"m": 2}, "Next": "Pause"},
        "Pause": {"Type": "Wait", "Seconds": 200, "Next": "Tell"},
        "Tell": {
            "Type": "Pass",
            "Parameters": {
                "kept.$": "$kept",
                "m.$": "$.m",
                "count.$": "$$.Execution.RedriveCount",
                "time.$": "$$.Execution.RedriveTime",
            },
            "End": True,
        },
    }
    arn = started(twin, "paused", states)
    wait_until(lambda: any(event["type"] == "WaitStateEntered" for event in history(twin, arn)))
    with pytest.raises(ClientError, match=r"ExecutionNotRedrivable.*RUNNING and cannot be redriven"):
        redrive(twin, arn)
    twin.client("stepfunctions").stop_execution(executionArn=arn, error="Mistaken")
    before = described(twin, arn)
    assert (before["status"], before["redriveStatus"], before["redriveCount"]) == ("ABORTED", "REDRIVABLE", 0)
    again = redrive(twin, arn, clientToken="once")
    assert redrive(twin, arn, clientToken="once") == again, "a repeated call redrives nothing"
    running = described(twin, arn)
    assert (running["status"], running["redriveCount"], running["redriveDate"]) == ("RUNNING", 1, again)
    assert {"stopDate", "error"}.isdisjoint(running)
    after = ended(twin, arn)
    output = json.loads(after["output"])
    assert (after["status"], output.pop("time")[:19]) == ("SUCCEEDED", again.astimezone(UTC).isoformat()[:19])
    assert output == {"kept": 2, "m": 2, "count": 1}
    assert after["redriveStatusReason"] == "Execution is SUCCEEDED and cannot be redriven"
    events = history(twin, arn)
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    entered = [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
    assert entered == ["Keep", "Pause", "Pause", "Tell"]
    assert [event["type"] for event in events if event["type"].startswith("Execution")] == [
        "ExecutionStarted",
        "ExecutionAborted",
        "ExecutionRedriven",
        "ExecutionSucceeded",
    ]


def test_an_execution_that_ended_in_a_fail_state_fails_again(twin: Twin) -> None:
    arn = started(twin, "failed", {"Stop": {"Type": "Fail", "Error": "Wrong", "Cause": "As before."}})
    assert ended(twin, arn)["error"] == "Wrong"
    redrive(twin, arn)
    after = ended(twin, arn)
    assert (after["status"], after["error"], after["redriveCount"]) == ("FAILED", "Wrong", 1)


def test_a_catcher_may_lead_back_to_its_state(twin: Twin) -> None:
    """As that of a window does after a pause."""
    missing = "arn:aws:states:us-west-2:123456789012:stateMachine:missing"
    call: dict[str, Any] = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution",
        "Parameters": {"StateMachineArn": missing},
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Call"}],
        "Next": "Wrong",
    }
    arn = started(twin, "caught", {"Call": call, "Wrong": {"Type": "Fail", "Error": "Wrong"}})

    def calls() -> int:
        return sum(event["type"] == "TaskStateEntered" for event in history(twin, arn))

    wait_until(lambda: calls() > 2)
    twin.client("stepfunctions").stop_execution(executionArn=arn)
    assert ended(twin, arn)["status"] == "ABORTED"


def test_an_execution_that_is_too_old_is_refused(twin: Twin) -> None:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    from local.aws.server import REGION

    arn = started(twin, "old", {"Stop": {"Type": "Fail", "Error": "Wrong"}})
    ended(twin, arn)
    execution = stepfunctions_parser_backends[DEFAULT_ACCOUNT_ID][REGION].describe_execution(arn)
    stopped = execution.stop_date
    execution.stop_date -= REDRIVABLE_FOR
    assert described(twin, arn)["redriveStatus"] == "NOT_REDRIVABLE"
    with pytest.raises(ClientError, match="redrivable period exceeded"):
        redrive(twin, arn)
    execution.stop_date, execution.start_date = stopped, execution.start_date - MAX_OPEN
    with pytest.raises(ClientError, match="exceeded the max execution time"):
        redrive(twin, arn)


def test_an_execution_of_a_deleted_state_machine_is_refused(twin: Twin) -> None:
    """Of a machine in DELETING status the service says so; here a machine is gone at once."""
    arn = started(twin, "deleted", {"Stop": {"Type": "Fail", "Error": "Wrong"}})
    machine = ended(twin, arn)["stateMachineArn"]
    twin.client("stepfunctions").delete_state_machine(stateMachineArn=machine)
    with pytest.raises(ClientError, match="DoesNotExist"):
        redrive(twin, arn)


@pytest.mark.slow
def test_a_run_that_was_stopped_is_redriven_and_succeeds(twin: Twin, tmp_path: Path) -> None:
    """With the command of docs/commands.md: `aws stepfunctions redrive-execution`."""
    place, run_id = TwinRuns(twin), "redriven-0000000000aa"
    place.start(parse_run_spec(steps_spec(max_steps=12, seconds_per_step=1)), run_id=run_id)
    wait_until(lambda: len((place.kept_steps(run_id) or KeptSteps()).steps) >= 4)
    place.stop(run_id, reason=RunError(name="Mistaken", message="It was the wrong one.", what_to_do=""))
    assert row(twin, run_id).keys() >= {"ended_at", "error_name"}
    assert row(twin, run_id)["status"] == {"S": "ABORTED"}
    assert_nothing_is_left(twin, run_id)

    assert twin.deployment is not None
    machine = twin.deployment.address.state_machine_arn
    arn = f"{machine.replace(':stateMachine:', ':execution:')}:{run_id}"
    redrive(twin, arn)
    wait_until(lambda: row(twin, run_id)["status"] == {"S": "RUNNING"})
    assert row(twin, run_id).keys().isdisjoint({"ended_at", "error_name"})
    record = follow_to_end(place, run_id, folder=tmp_path, console=Console(file=io.StringIO()))
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)
    own = [visit.name for visit in record.states if visit.execution == run_id]
    assert own.count("ValidateRun") == 1
    assert own.count("SubmitTraining") == 2, "a job that was deleted is started again"
    assert published_losses(twin, run_id)[0] == 12, "once each, also those of before the stop"
    place.settle()
    assert row(twin, run_id)["status"] == {"S": "SUCCEEDED"}
    assert_nothing_is_left(twin, run_id)


@pytest.mark.slow
def test_a_run_goes_on_when_a_window_of_its_is_stopped(twin: Twin, tmp_path: Path) -> None:
    place, run_id = TwinRuns(twin), "unwatched-0000000000aa"
    place.start(parse_run_spec(steps_spec(max_steps=12, seconds_per_step=1)), run_id=run_id)
    wait_until(lambda: len((place.kept_steps(run_id) or KeptSteps()).steps) >= 4)
    assert twin.deployment is not None
    sfn, machine = twin.client("stepfunctions"), twin.deployment.address.state_machine_arn
    windows = machine.replace("-training", "-watch-job")
    (window,) = [
        found["executionArn"]
        for found in sfn.list_executions(stateMachineArn=windows, statusFilter="RUNNING")["executions"]
        if found["name"].startswith(run_id)
    ]
    sfn.stop_execution(executionArn=window, error="Mistaken", cause="Somebody took it for the run.")
    record = follow_to_end(place, run_id, folder=tmp_path, console=Console(file=io.StringIO()))
    assert (record.error, record.status, record.restarts) == (None, RunStatus.SUCCEEDED, [])
    own = [visit.name for visit in record.states if visit.execution == run_id]
    assert (own.count("WatchTraining"), own.count("SubmitTraining")) == (2, 1)
    assert published_losses(twin, run_id)[0] == 12, "once each, also those of the window that was stopped"
    place.settle()
    assert_nothing_is_left(twin, run_id)


def row(twin: Twin, run_id: str) -> dict[str, Any]:
    found = twin.client("dynamodb").get_item(TableName=deployment.RUN_TABLE, Key={"run_id": {"S": run_id}})
    return {name: value for name, value in found["Item"].items() if value != {"NULL": True}}
