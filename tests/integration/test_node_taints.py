"""The twin's Trainium nodes keep away what EKS's would: pods that do not tolerate the taint of their node group."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin_testing.cluster import command, eventually

from lambdas.backends.registry import KINDS
from lambdas.logic.jobs import job_of
from local.no_op_logs import STEPS, step_loss
from local.nodegroups import Nodegroups, NodeSettings
from local.shared_storage import offer
from tests.fakes.runs import run_on
from tests.integration.api_paths import collection
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.deployment.kubernetes_names import RUN_LABEL
from trainflow.nodes.instances import INSTANCE_TYPES, nodegroup_name
from trainflow.workflow.run import Stage

INSTANCE = INSTANCE_TYPES["trn1.32xlarge"]
each_kind = pytest.mark.parametrize("kind", KUBERNETES_KINDS)


@dataclass(frozen=True)
class Cluster:
    api: ApiClient
    folder: Path

    def log(self, pod: dict[str, Any]) -> str:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
        return b"".join(self.api._open("GET", path, {}).stream()).decode()

    @contextmanager
    def gang(self, kind: str, *, tolerant: bool) -> Iterator[Callable[[], list[dict[str, Any]]]]:
        """A run's training job in a namespace of its own, until the block ends; gives what lists its pods."""
        namespace = f"t-{uuid.uuid4().hex[:8]}"
        offer(self.api, self.folder / namespace, namespace=namespace)
        job = job_of(run_on(kind), Stage.TRAINING, 1, artifacts_url="s3://artifacts/runs/x/")
        made = []
        for manifest in KINDS[kind].render(replace(job, plan=None, command=("sleep", "600"))):
            path = collection(manifest, namespace)
            self.api.create(path, manifest if tolerant else without_tolerations(manifest))
            made.append(f"{path}/{manifest['metadata']['name']}")

        def pods() -> list[dict[str, Any]]:
            selector = f"{RUN_LABEL}={job.run_id}"
            return list(self.api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)["items"])

        yield pods
        for path in made:
            self.api.delete(path, {"propagationPolicy": "Background"})
        eventually(lambda: not pods(), "no pod is left")


def without_tolerations(value: Any) -> Any:
    """The same manifest, whose pods tolerate nothing."""
    match value:
        case dict():
            return {key: without_tolerations(each) for key, each in value.items() if key != "tolerations"}
        case list():
            return [without_tolerations(each) for each in value]
        case _:
            return value


def why_not_scheduled(pod: dict[str, Any]) -> str | None:
    conditions = {each["type"]: each for each in pod["status"].get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    return scheduled.get("message") if scheduled.get("status") == "False" else None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server, and the node group of two that an EKS call would have brought up."""
    folder = tmp_path_factory.mktemp("taints")
    with command("--state", str(folder), "--nodes", "0") as (_, ready):
        kubeconfig = Path(ready["kubeconfig"])
        settings = NodeSettings(
            kubeconfig=kubeconfig,
            python=Path(sys.executable),
            pods_dir=folder / "pods",
            image_root=folder,
            environment={},
            log_file=folder / "nodes.log",
            no_op_seconds=600,
        )
        nodegroups = Nodegroups(lambda: {nodegroup_name(INSTANCE.name): (INSTANCE.name, 2)}, settings)
        nodegroups.start()
        try:
            api = ApiClient(load_connection(kubeconfig))
            eventually(lambda: len(api.get("/api/v1/nodes")["items"]) == 2, "two nodes")
            yield Cluster(api, folder)
        finally:
            nodegroups.stop()


def test_nodes_carry_the_taints_of_the_deployed_node_group(cluster: Cluster) -> None:
    def taints() -> list[Any]:
        nodes = cluster.api.get("/api/v1/nodes")["items"]
        return [node["spec"].get("taints") for node in nodes]

    wanted = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in INSTANCE.taints.items()]
    assert wanted
    eventually(lambda: taints() == [wanted, wanted], "nodes that are ready and tainted")


@each_kind
def test_a_gang_that_tolerates_nothing_stays_pending_and_says_why(kind: str, cluster: Cluster) -> None:
    with cluster.gang(kind, tolerant=False) as pods:
        eventually(lambda: any("untolerated taint" in (why_not_scheduled(pod) or "") for pod in pods()), "a refusal")
        assert {pod["status"]["phase"] for pod in pods()} == {"Pending"}


@each_kind
def test_our_gang_runs_on_tainted_nodes(kind: str, cluster: Cluster) -> None:
    num_nodes = 1 if kind == "pod" else 2
    with cluster.gang(kind, tolerant=True) as pods:
        eventually(lambda: [pod["status"]["phase"] for pod in pods()] == ["Running"] * num_nodes, "all pods run")


def test_rank_0_of_a_gang_without_programs_prints_the_losses_of_its_run(cluster: Cluster) -> None:
    with cluster.gang("job", tolerant=True) as pods:
        eventually(lambda: [pod["status"]["phase"] for pod in pods()] == ["Running"] * 2, "all pods run")
        printed = "".join(cluster.log(pod) for pod in pods())
        [run_id] = {pod["metadata"]["labels"][RUN_LABEL] for pod in pods()}
        losses = [f"step_loss : {step_loss(run_id, step):.4f}" for step in range(1, STEPS + 1)]
        assert re.findall(r"step_loss : [\d.]+", printed) == losses
