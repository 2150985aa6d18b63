"""Preflight in the twin: what could not start is refused in one list, before any node is asked for."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubetwin.client import ApiClient, RequestRefused
from kubetwin.kubeconfig import load_connection
from rich.console import Console

from local.aws import deployment
from local.node_shapes import SMALL_JOBS_NODEGROUP
from local.node_times import node_times
from local.twin import Twin
from tests.integration.running import follow_run
from tests.waiting import wait_until
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord

STEPS = "tests/assets/programs/steps.py"
PODS = "/api/v1/namespaces/training/pods"
JOBS = "/apis/batch/v1/namespaces/training/jobs"
DAEMON_SETS = "/apis/apps/v1/namespaces/training/daemonsets"

Run = Callable[..., RunRecord]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=60) as running:
        yield running


@pytest.fixture
def api(twin: Twin) -> ApiClient:
    return ApiClient(load_connection(twin.kubeconfig))


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(run_id: str, **sections: Any) -> RunRecord:
        console = Console(file=io.StringIO())
        spec = {
            "version": 1,
            "name": "steps",
            "workload": {"script": STEPS, "image": "trainer:test", "launcher": "mpi", **sections.pop("workload", {})},
            "compute": {"instance_type": "trn1.2xlarge", **sections.pop("compute", {})},
            "precompile": {"enabled": False},
            **sections,
        }
        return follow_run(twin, parse_run_spec(spec), run_id, folder=tmp_path / run_id, console=console)

    return start


def states(record: RunRecord) -> list[str]:
    return list(dict.fromkeys(visit.name for visit in record.states if visit.execution == record.run_id))


def assert_nothing_is_left(api: ApiClient, run_id: str) -> None:
    assert deployment.gang_nodes() == 0
    deadline = time.monotonic() + 20
    while (left := leavings(api, run_id)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def leavings(api: ApiClient, run_id: str) -> list[str]:
    kept = [each["metadata"]["name"] for path in (PODS, JOBS) for each in api.get(path)["items"]]
    return [name for name in kept if name.startswith(run_id)] + [str(pid) for pid in processes_of(run_id)]


def processes_of(run_id: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("TRAINFLOW_RUN_ID") == run_id:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_good_run_passes_with_nothing_left_unchecked(run: Run, api: ApiClient) -> None:
    record = run("good-0000000000aa")
    assert (record.status, record.error, record.not_checked) == ("SUCCEEDED", None, [])
    assert states(record)[:3] == ["ValidateRun", "Preflight", "IsPreflightDone"]
    [pod] = record.jobs["preflight"].pods
    assert (pod.exit_code, pod.node) == (0, "t3a-large-0")
    assert_nothing_is_left(api, record.run_id)


def test_everything_that_is_wrong_is_named_at_once_and_nothing_was_scaled(run: Run, api: ApiClient) -> None:
    record = run(
        "five-0000000000aa",
        workload={"module": "trainer.pretrian", "script": None},
        compute={
            "instance_type": "trn2.48xlarge",
            "num_nodes": 17,
            "backend": "volcano",
            "queue": "nobodys",
            "priority_class": "vip",
        },
        dataset={"url": f"s3://{deployment.DATA_BUCKET}/data/nothing.tar"},
    )
    assert record.error is not None
    assert record.error.name == "PreflightFailed"
    lines = record.error.message.splitlines()
    assert lines[0] == "This run could not start for 7 reasons:"
    for line, words in zip(
        lines[1:],
        [
            "compute.num_nodes is 17, but the node group",
            "compute.instance_type is trn2.48xlarge, which is not offered in us-west-2d (usw2-az4)",
            "17 x trn2.48xlarge take 3264 vCPUs, but the quota",
            "compute.queue is 'nobodys'",
            "compute.priority_class is 'vip'",
            f"dataset.url: there is no object s3://{deployment.DATA_BUCKET}/data/nothing.tar",
            "workload.module: there is no module 'trainer.pretrian'",
        ],
        strict=True,
    ):
        assert words in line
    assert "EnsureCapacity" not in states(record)
    assert states(record)[-1] == "RunFailed"
    assert_nothing_is_left(api, record.run_id)


def test_wrong_arguments_cost_no_node(run: Run, api: ApiClient) -> None:
    record = run("args-0000000000aa", workload={"module": "trainer.mlp", "script": None, "arguments": {"epochs": 0}})
    assert record.error is not None
    assert record.error.message == "workload.arguments: --epochs is 0; it has to be above 0."
    assert "EnsureCapacity" not in states(record)
    assert_nothing_is_left(api, record.run_id)


@pytest.fixture
def without_plugin(api: ApiClient) -> Iterator[None]:
    path = f"{DAEMON_SETS}/neuron-device-plugin"
    removed = api.get(path)
    api.delete(path)
    yield
    metadata = {"name": removed["metadata"]["name"]}
    kind = {"apiVersion": "apps/v1", "kind": "DaemonSet"}
    api.create(DAEMON_SETS, {**kind, "metadata": metadata, "spec": removed["spec"]})


@pytest.mark.usefixtures("without_plugin")
def test_a_cluster_without_the_neuron_device_plugin_gets_no_nodes_that_no_pod_could_use(run: Run) -> None:
    record = run("plug-0000000000aa")
    assert record.error is not None
    assert "the cluster has no daemon set neuron-device-plugin" in record.error.message
    assert "EnsureCapacity" not in states(record)


def test_the_twin_runs_no_daemon_sets_but_those_that_only_say_who_advertises(api: ApiClient) -> None:
    [first, *_] = api.get(DAEMON_SETS)["items"]
    first["spec"]["template"]["spec"]["nodeSelector"] = {}
    with pytest.raises(RequestRefused, match="this cluster runs no DaemonSets"):
        api.create(DAEMON_SETS, {**first, "metadata": {"name": "agent"}, "apiVersion": "apps/v1", "kind": "DaemonSet"})


def permanent_node(api: ApiClient) -> Any:
    """The twin's one node while it runs nothing, which joins a moment after the twin has started."""
    wait_until(lambda: len(api.get("/api/v1/nodes")["items"]) == 1)
    [node] = api.get("/api/v1/nodes")["items"]
    return node


def test_a_silent_node_is_lost_in_the_twins_time_and_its_heartbeats_come_accordingly(api: ApiClient) -> None:
    node = permanent_node(api)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node['metadata']['name']}"
    renewed = api.get(lease)["spec"]["renewTime"]
    wait_until(lambda: api.get(lease)["spec"]["renewTime"] != renewed)
    pod = {"metadata": {"name": "tolerant"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "none"}}
    tolerations = api.create(PODS, pod)["spec"]["tolerations"]
    api.delete(f"{PODS}/tolerant", {"gracePeriodSeconds": 0})
    assert [(each["key"], each["tolerationSeconds"]) for each in tolerations] == [
        (f"node.kubernetes.io/{state}", node_times(60).toleration_seconds) for state in ("not-ready", "unreachable")
    ]


def test_small_pods_have_a_node_that_is_always_there(api: ApiClient) -> None:
    labels = permanent_node(api)["metadata"]["labels"]
    assert labels["eks.amazonaws.com/nodegroup"] == SMALL_JOBS_NODEGROUP
    assert labels["node.kubernetes.io/instance-type"] == "t3a.large"
    assert deployment.desired_sizes()[SMALL_JOBS_NODEGROUP] == ("t3a.large", deployment.SMALL_JOB_NODES)
