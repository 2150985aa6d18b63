"""A cluster that makes nodes for pending pods: gangs get all of their nodes, or fail with the autoscaler's reason."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from rich.console import Console

from lambdas.backends.registry import KINDS
from lambdas.logic.jobs import job_of
from local.place import TwinRuns
from local.twin import Twin
from tests.fakes.runs import run_on
from tests.integration.running import follow_run
from tests.integration.test_runs import state_names, steps_spec
from trainflow.cli.run import follow_to_end
from trainflow.deployment.kubernetes_access import placeholder_priority
from trainflow.deployment.kubernetes_names import PLACEHOLDER_PRIORITY, RUN_LABEL, UNDISTURBED
from trainflow.nodes.instances import nodegroup_name
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import RunRecord

Run = Callable[..., RunRecord]

WHOLE, NONE, PART = "trn1.32xlarge", "g6.12xlarge", "g6.24xlarge"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=60, autoscaled={NONE: 0, PART: 2}) as running:
        yield running


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(
        run_id: str,
        *,
        limits: dict[str, Any] | None = None,
        arguments: dict[str, Any] | None = None,
        **compute: Any,
    ) -> RunRecord:
        spec = steps_spec(**arguments or {})
        spec["compute"] |= compute
        spec["limits"] |= limits or {}
        console = Console(file=io.StringIO())
        return follow_run(twin, parse_run_spec(spec), run_id, folder=tmp_path / run_id, console=console)

    return start


def api_of(twin: Twin) -> ApiClient:
    return ApiClient(load_connection(twin.kubeconfig))


def assert_nothing_holds_a_node(twin: Twin, run_id: str) -> None:
    """No pod of the run is left, so that the cluster's autoscaler ends the nodes; no node group was touched."""
    pods = api_of(twin).get("/api/v1/pods", labelSelector=f"{RUN_LABEL}={run_id}")["items"]
    assert [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")] == []
    assert twin.autoscaler is not None
    deadline = time.monotonic() + 30
    while twin.autoscaler.num_nodes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert twin.autoscaler.num_nodes() == 0
    for name in (WHOLE, NONE, PART):
        group = twin.client("eks").describe_nodegroup(clusterName="trainflow", nodegroupName=nodegroup_name(name))
        assert group["nodegroup"]["scalingConfig"]["desiredSize"] == 0


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_a_gang_trains_on_nodes_that_the_cluster_made_and_leaves_none(num_nodes: int, run: Run, twin: Twin) -> None:
    run_id = f"gang-00000000000{num_nodes}"
    record = run(run_id, num_nodes=num_nodes)
    assert (record.status, record.error) == ("SUCCEEDED", None)
    assert len({pod.node for pod in record.jobs["training"].pods}) == num_nodes
    assert_nothing_holds_a_node(twin, run_id)


def test_nodes_that_never_come_end_the_run_with_the_reason_of_the_autoscaler(run: Run, twin: Twin) -> None:
    record = run("never-000000000001", instance_type=NONE, limits={"capacity_timeout_minutes": 0.2})
    assert record.error is not None
    assert record.error.name == "CapacityTimeout"
    assert "0 of 2 g6.12xlarge nodes were ready" in record.error.message
    assert "cluster-autoscaler: NotTriggerScaleUp: pod didn't trigger scale-up" in record.error.message
    assert "SubmitTraining" not in state_names(record)
    assert_nothing_holds_a_node(twin, record.run_id)


def test_a_part_of_a_gang_trains_nothing_and_gives_its_nodes_back(run: Run, twin: Twin) -> None:
    record = run("part-0000000000001", instance_type=PART, num_nodes=3, limits={"capacity_timeout_minutes": 0.3})
    assert record.error is not None
    assert record.error.name == "CapacityTimeout"
    assert "2 of 3 g6.24xlarge nodes were ready" in record.error.message
    assert "max node group size reached" in record.error.message
    assert "SubmitTraining" not in state_names(record)
    assert_nothing_holds_a_node(twin, record.run_id)


def test_a_type_that_the_cluster_does_not_make_is_left_for_the_next_one(run: Run, twin: Twin) -> None:
    record = run("other-00000000001a", instance_type=NONE, fallback=["g6e.12xlarge"], num_nodes=1)
    assert (record.status, record.error) == ("SUCCEEDED", None)
    assert (record.instance_type, record.given_up) == ("g6e.12xlarge", [NONE])
    assert_nothing_holds_a_node(twin, record.run_id)


def test_a_gang_that_is_started_again_holds_its_nodes_again(run: Run, twin: Twin) -> None:
    died = {"max_steps": 3, "dies_by_signal_at": 3}
    record = run("again-00000000001a", arguments=died, limits={"max_restarts": 1}, num_nodes=2)
    assert record.error is not None
    assert record.error.name != "CapacityTimeout"
    assert len(record.restarts) == 1
    assert [visit.name for visit in record.states].count("SubmitTraining") == 2
    assert_nothing_holds_a_node(twin, record.run_id)


@pytest.mark.slow
def test_of_two_gangs_that_need_the_same_nodes_both_train(twin: Twin, tmp_path: Path) -> None:
    """Each needs all nodes that there may be: with a part each, both would wait for ever."""
    place = TwinRuns(twin)
    spec = steps_spec()
    spec["compute"] |= {"instance_type": PART, "num_nodes": 2}
    ids = [f"rival-00000000000{number}" for number in range(2)]
    for run_id in ids:
        place.start(parse_run_spec(spec), run_id=run_id)
    console = Console(file=io.StringIO())
    records = [follow_to_end(place, run_id, folder=tmp_path / run_id, console=console) for run_id in ids]
    assert [(record.status, record.error) for record in records] == [("SUCCEEDED", None)] * 2
    for run_id in ids:
        assert_nothing_holds_a_node(twin, run_id)


def test_a_cluster_without_the_priority_class_is_refused_before_any_node_is_made(run: Run, twin: Twin) -> None:
    api, path = api_of(twin), "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.delete(f"{path}/{PLACEHOLDER_PRIORITY}")
    try:
        record = run("lacks-00000000001a", num_nodes=1)
    finally:
        api.create(path, placeholder_priority())
    assert record.error is not None
    assert record.error.name == "PreflightFailed"
    assert "The cluster refuses the pods that hold the nodes of this run" in record.error.message
    assert PLACEHOLDER_PRIORITY in record.error.message
    assert "EnsureCapacity" not in state_names(record)


def test_pods_of_a_gang_ask_autoscalers_to_leave_their_nodes_alone() -> None:
    for name, kind in KINDS.items():
        job = job_of(run_on(name), Stage.TRAINING, 1, artifacts_url="s3://artifacts/runs/x/")
        assert UNDISTURBED.items() <= _annotations(kind.render(job)).items()


def _annotations(document: Any) -> dict[str, str]:
    """Annotations of the pods in manifests, all together."""
    found: dict[str, str] = {}
    match document:
        case dict():
            if "containers" in (document.get("spec") or {}):
                return dict(document["metadata"].get("annotations") or {})
            for value in document.values():
                found |= _annotations(value)
        case list():
            for value in document:
                found |= _annotations(value)
    return found
