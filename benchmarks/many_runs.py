"""Many runs at once in a twin whose pods run nothing: started together, awaited, and read afterwards."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws import deployment
from local.twin import Twin
from trainflow.deployment.kubernetes_names import CLAIM_LABEL, JOB_LABEL, RUN_LABEL
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL, nodegroup_name

LEFT_SECONDS = 30.0
"""Deleted pods take a moment: their node agents have the last word."""

PATHS = ("/api/v1/pods", "/api/v1/services", "/api/v1/configmaps", "/apis/batch/v1/jobs")


def limit_nodes(twin: Twin, instance_type: str, maximum: int) -> None:
    """Let a type have at most so many nodes."""
    twin.client("eks").update_nodegroup_config(
        clusterName=deployment.CLUSTER_NAME,
        nodegroupName=nodegroup_name(instance_type),
        scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": maximum},
    )


def start_all(twin: Twin, specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Start a run for each spec by its id; their executions' ARNs."""
    assert twin.deployment is not None, "the twin runs, with everything deployed"
    states, machine = twin.client("stepfunctions"), twin.deployment.address.state_machine_arn
    return {
        run_id: states.start_execution(stateMachineArn=machine, name=run_id, input=json.dumps(spec))["executionArn"]
        for run_id, spec in specs.items()
    }


def await_all(
    twin: Twin,
    arns: Mapping[str, str],
    *,
    limit_seconds: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Wait for executions, and return how each ended.

    Args:
        twin: Where.
        arns: The executions, by run id.
        limit_seconds: Longest wait; executions that run longer are returned as RUNNING.
        meanwhile: Called about once a second.
    """
    states, statuses = twin.client("stepfunctions"), dict.fromkeys(arns, "RUNNING")
    deadline = time.monotonic() + limit_seconds
    while "RUNNING" in statuses.values() and time.monotonic() < deadline:
        time.sleep(1)
        meanwhile()
        for run_id in [run_id for run_id, status in statuses.items() if status == "RUNNING"]:
            statuses[run_id] = states.describe_execution(executionArn=arns[run_id])["status"]
    return statuses


def run_all(
    twin: Twin,
    specs: Mapping[str, Mapping[str, Any]],
    *,
    limit_seconds: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Start a run for each spec by its id, and wait as `await_all` does."""
    return await_all(twin, start_all(twin, specs), limit_seconds=limit_seconds, meanwhile=meanwhile)


def published_losses(twin: Twin, run_id: str) -> tuple[float, float]:
    """Number of losses that CloudWatch has of a run, and their sum."""
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


def left_in_cluster(twin: Twin, paths: Sequence[str] = PATHS) -> list[str]:
    """Objects of runs that are still in the cluster after a moment. Objects of all runs lack the label of a run."""
    deadline = time.monotonic() + LEFT_SECONDS
    with closing(ApiClient(load_connection(Path(twin.kubeconfig)))) as api:
        while (left := _objects(api, paths)) and time.monotonic() < deadline:
            time.sleep(0.5)
    return left


def _objects(api: ApiClient, paths: Sequence[str]) -> list[str]:
    return [
        f"{path.rsplit('/', 1)[1]}/{item['metadata']['name']}"
        for path in paths
        for item in api.get(path, labelSelector=RUN_LABEL)["items"]
    ]


class Contention:
    """Shares of several runs in the nodes of one type, polled from time to time inside the block."""

    def __init__(self, twin: Twin, instance_type: str) -> None:
        self._api, self._type = ApiClient(load_connection(Path(twin.kubeconfig))), instance_type
        self._partial_since: dict[str, float] = {}
        self.most_granted = 0
        """Most nodes that runs with a claim had been granted together."""
        self.most_nodes = 0
        self.longest_partial = 0.0
        """Longest time in seconds that some pods of a gang had their nodes and others waited."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()

    def poll(self) -> None:
        """Read the present state. Grants are read before the claims: a grant counts only with its claim."""
        maps = f"/api/v1/namespaces/{deployment.NAMESPACE}/configmaps"
        shared = {each["metadata"]["name"]: each for each in self._api.get(maps)["items"]}
        granted = (shared.get(f"granted-{self._type}") or {}).get("data") or {}
        claims = self._api.get(maps, labelSelector=f"{CLAIM_LABEL}={self._type}")["items"]
        claiming = {claim["metadata"]["labels"][RUN_LABEL] for claim in claims}
        self.most_granted = max(self.most_granted, sum(int(granted[run]) for run in claiming & granted.keys()))
        nodes = self._api.get("/api/v1/nodes", labelSelector=f"{INSTANCE_TYPE_LABEL}={self._type}")["items"]
        self.most_nodes = max(self.most_nodes, len(nodes))
        self._poll_gangs()

    def _poll_gangs(self) -> None:
        placed: dict[str, list[bool]] = defaultdict(list)
        for pod in self._api.get("/api/v1/pods", labelSelector=JOB_LABEL)["items"]:
            ended = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Succeeded", "Failed")
            if not ended:
                placed[pod["metadata"]["labels"][JOB_LABEL]].append(bool(pod["spec"].get("nodeName")))
        now = time.monotonic()
        partial = {job for job, pods in placed.items() if any(pods) and not all(pods)}
        self._partial_since = {job: self._partial_since.get(job, now) for job in partial}
        self.longest_partial = max([self.longest_partial, *(now - since for since in self._partial_since.values())])
