"""What the benchmark of faults reads of the twin."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from benchmarks.fault_runs import histories
from local.aws.server import AwsServer
from tests.integration.permitted import make_role
from tests.waiting import wait_until
from trainflow.models.run_record import RunStatus

LAPS = 60
"""Two states each, and two events for each of them."""


@pytest.fixture
def aws() -> Iterator[AwsServer]:
    server = AwsServer(time_scale=100)
    server.start()
    yield server
    server.stop()


def test_histories_of_more_than_one_page_are_read_to_their_end(aws: AwsServer) -> None:
    sfn, role = aws.client("stepfunctions"), make_role(aws, "states")
    laps = {
        "Begin": {"Type": "Pass", "Assign": {"lap": 0}, "Next": "Count"},
        "Count": {"Type": "Pass", "Assign": {"lap.$": "States.MathAdd($lap, 1)"}, "Next": "IsLast"},
        "IsLast": {
            "Type": "Choice",
            "Choices": [{"Variable": "$lap", "NumericLessThan": LAPS, "Next": "Count"}],
            "Default": "End",
        },
        "End": {"Type": "Pass", "End": True},
    }
    window = sfn.create_state_machine(
        name="window", roleArn=role, definition=json.dumps({"StartAt": "Begin", "States": laps})
    )["stateMachineArn"]
    watch = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Parameters": {"StateMachineArn": window, "Name": "window-1", "Input": {}},
        "Next": "Begin",
    }
    run = sfn.create_state_machine(
        name="run", roleArn=role, definition=json.dumps({"StartAt": "Watch", "States": {"Watch": watch, **laps}})
    )["stateMachineArn"]
    arn = sfn.start_execution(stateMachineArn=run, name="run-1")["executionArn"]
    wait_until(lambda: sfn.describe_execution(executionArn=arn)["status"] != "RUNNING", seconds=60)
    found = histories(sfn, arn)
    assert [(each.name, each.status) for each in found] == [
        ("run-1", RunStatus.SUCCEEDED),
        ("window-1", RunStatus.SUCCEEDED),
    ]
    for each in found:
        assert each.num_events > 4 * LAPS
        assert [event["id"] for event in each.events] == list(range(1, each.num_events + 1))
