"""What the benchmark of faults counts in the twin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from benchmarks.fault_injection import Mail, Plan, twin_with
from benchmarks.fault_runs import TIME_SCALE, Expected, histories, outcome, steps
from local.aws.deployment import NAMESPACE as NAMESPACE_OF_RUNS
from local.aws.faults import Fault
from local.aws.server import AwsServer
from local.twin import Twin
from tests.integration.permitted import make_role
from tests.waiting import wait_until
from trainflow.deployment.kubernetes_names import RUN_LABEL, STAGE_LABEL
from trainflow.workflow.metric_names import DEPLOYMENT_DIMENSION, NAMESPACE, RUN_DIMENSION, RunMetric
from trainflow.workflow.run_record import RunStatus

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
    wait_until(lambda: sfn.describe_execution(executionArn=arn)["status"] != "RUNNING")
    found = histories(sfn, arn)
    assert [(each.name, each.status) for each in found] == [
        ("run-1", RunStatus.SUCCEEDED),
        ("window-1", RunStatus.SUCCEEDED),
    ]
    for each in found:
        assert each.num_events > 4 * LAPS
        assert [event["id"] for event in each.events] == list(range(1, each.num_events + 1))


class Doubling:
    """A plan in which no function fails: before a run is torn down, its effects happen once more."""

    def __init__(self, twin: Twin, run_id: str) -> None:
        self._twin, self._run_id, self.met = twin, run_id, 0

    def __call__(self, function: str, _event: Any) -> Fault | None:
        if function == "TearDown" and not self.met:
            self.met += 1
            self._double()
        return None

    def _double(self) -> None:
        assert self._twin.deployment is not None
        self._twin.client("sns").publish(
            TopicArn=self._twin.deployment.topic_arn, Subject=f"Trainflow: {self._run_id} SUCCEEDED", Message="Again."
        )
        self._twin.client("cloudwatch").put_metric_data(
            Namespace=NAMESPACE,
            MetricData=[
                {
                    "MetricName": RunMetric.STEP_LOSS.value,
                    "Dimensions": [
                        {"Name": DEPLOYMENT_DIMENSION, "Value": "twin"},
                        {"Name": RUN_DIMENSION, "Value": self._run_id},
                    ],
                    "Timestamp": datetime.now(UTC),
                    "Value": 8.98,
                }
            ],
        )
        with closing(ApiClient(load_connection(self._twin.kubeconfig))) as api:
            path = f"/apis/batch/v1/namespaces/{NAMESPACE_OF_RUNS}/jobs"
            job = api.get(path, labelSelector=f"{RUN_LABEL}={self._run_id},{STAGE_LABEL}=training")["items"][0]
            labels = {name: text for name, text in job["metadata"]["labels"].items() if name.startswith("trainflow/")}
            metadata = {"name": f"{self._run_id}-training-again", "labels": labels}
            template = {"metadata": {"labels": labels}, "spec": WITHOUT_NODE}
            spec = {"completions": 1, "parallelism": 1, "template": template}
            api.create(path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


WITHOUT_NODE = {
    "restartPolicy": "Never",
    "nodeSelector": {"example.com/absent": "true"},
    "containers": [{"name": "trainer", "image": "trainer:test"}],
}


@pytest.mark.slow
def test_what_happens_twice_in_a_run_is_counted(tmp_path: Path) -> None:
    plan, run_id = Plan(), "doubled-0000000000aa"
    with twin_with(plan, tmp_path, time_scale=TIME_SCALE) as twin:
        runs = {run_id: Expected(spec=steps(max_steps=3), points=3, pods={"training": 2})}
        doubling, mail = Doubling(twin, run_id), Mail(twin, "doubled")
        with plan.replaced(doubling):
            row, executions = outcome(twin, runs, mail)
        assert doubling.met == 1
        assert (row.lost, row.doubled, row.left) == (0, 3, 0), row.notes
        assert executions[0].status is RunStatus.SUCCEEDED
