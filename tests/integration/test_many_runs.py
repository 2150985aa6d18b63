"""Two hundred runs at once in the twin: the real state machines and functions, pods that run nothing."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws import deployment
from local.no_op_logs import STEPS, step_loss
from local.twin import Twin
from trainflow.models.instances import nodegroup_name

NUM_RUNS = 200
TYPE = "trn1.2xlarge"
LIMIT_SECONDS = 900
RUN_ID = re.compile(r"many-[0-9a-f]{12}")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=2, no_op_seconds=0.0) as running:
        running.client("eks").update_nodegroup_config(
            clusterName=deployment.CLUSTER_NAME,
            nodegroupName=nodegroup_name(TYPE),
            scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": NUM_RUNS},
        )
        yield running


def spec() -> dict[str, Any]:
    return {
        "version": 1,
        "name": "many",
        "workload": {"script": "tests/assets/programs/steps.py", "image": "trainer:test"},
        "compute": {"instance_type": TYPE, "num_nodes": 1, "processes_per_node": 1},
        "precompile": {"enabled": False},
    }


def ended(twin: Twin, run_ids: list[str]) -> dict[str, str]:
    """Start all runs, wait for all, and say how each ended."""
    states, machine = twin.client("stepfunctions"), deployment_of(twin).address.state_machine_arn
    arns = {
        run_id: states.start_execution(stateMachineArn=machine, name=run_id, input=json.dumps(spec()))["executionArn"]
        for run_id in run_ids
    }
    statuses = dict.fromkeys(run_ids, "RUNNING")
    deadline = time.monotonic() + LIMIT_SECONDS
    while "RUNNING" in statuses.values() and time.monotonic() < deadline:
        time.sleep(1)
        for run_id in [run_id for run_id, status in statuses.items() if status == "RUNNING"]:
            statuses[run_id] = states.describe_execution(executionArn=arns[run_id])["status"]
    return statuses


def deployment_of(twin: Twin) -> deployment.Deployment:
    assert twin.deployment is not None
    return twin.deployment


def published_losses(twin: Twin, run_id: str) -> tuple[float, float]:
    """How many losses CloudWatch has of a run, and their sum."""
    now = datetime.now(UTC)
    found = twin.client("cloudwatch").get_metric_statistics(
        Namespace="Trainflow",
        MetricName="StepLoss",
        Dimensions=[{"Name": "Deployment", "Value": "twin"}, {"Name": "RunId", "Value": run_id}],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        Statistics=["SampleCount", "Sum"],
    )["Datapoints"]
    return sum(each["SampleCount"] for each in found), sum(each["Sum"] for each in found)


def artifacts(twin: Twin, run_id: str) -> dict[str, str]:
    """The run's objects in S3, by what they are called there."""
    s3, prefix = twin.client("s3"), f"runs/{run_id}/"
    keys = [
        found["Key"]
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=deployment.ARTIFACT_BUCKET, Prefix=prefix)
        for found in page.get("Contents", ())
    ]
    return {
        key.removeprefix(prefix): s3.get_object(Bucket=deployment.ARTIFACT_BUCKET, Key=key)["Body"].read().decode()
        for key in keys
    }


def test_two_hundred_runs_at_once_all_end_and_none_is_mixed_with_another(twin: Twin) -> None:
    run_ids = [f"many-{number:012x}" for number in range(NUM_RUNS)]
    statuses = ended(twin, run_ids)
    assert Counter(statuses.values()) == {"SUCCEEDED": NUM_RUNS}

    for run_id in run_ids:
        losses = [step_loss(run_id, step) for step in range(1, STEPS + 1)]
        count, total = published_losses(twin, run_id)
        assert (count, total) == (STEPS, pytest.approx(sum(losses), abs=1e-6))

        kept = artifacts(twin, run_id)
        training = json.loads(kept["run.json"])["training"]
        assert (training["steps"], training["last_loss"]) == (STEPS, pytest.approx(losses[-1], abs=1e-4))
        logs = {name: text for name, text in kept.items() if name.startswith("logs/")}
        assert any(name.startswith(f"logs/{run_id}-training-1-0-") for name in logs)
        assert {found for text in logs.values() for found in RUN_ID.findall(text)} == {run_id}

    assert deployment.gang_nodes() == 0
    assert_nothing_is_left(ApiClient(load_connection(Path(twin.kubeconfig))))


def assert_nothing_is_left(api: ApiClient) -> None:
    """Deleted pods take a moment: their node agents have the last word."""
    paths = ["/api/v1/pods", "/api/v1/services", "/api/v1/configmaps", "/apis/batch/v1/jobs"]
    deadline = time.monotonic() + 30
    left: list[str] = []
    while time.monotonic() < deadline:
        left = [
            item["metadata"]["name"]
            for path in paths
            for item in api.get(path, labelSelector="app.kubernetes.io/managed-by=trainflow")["items"]
        ]
        if not left:
            return
        time.sleep(0.5)
    assert left == []
