"""Nodes whose pods run nothing, against the twin's own API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubetwin.kubeconfig import write_kubeconfig
from kubetwin.node.api import KubernetesApi
from kubetwin.node.kubeconfig import load_connection
from kubetwin.node.no_op import STEPS, NoOpNodes, step_loss
from kubetwin.node.registration import NodeSpec, instance_type_named
from kubetwin.server import ApiServer

RUN_ID = "quiet-0123456789ab"
JOB = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with ApiServer() as server:
        path = tmp_path / "kubeconfig"
        write_kubeconfig(path, endpoint=server.endpoint, ca_pem=server.ca_pem, token=server.admin_token)
        yield path


@pytest.fixture
def api(kubeconfig: Path) -> KubernetesApi:
    return KubernetesApi(load_connection(kubeconfig))


def nodes(api: KubernetesApi, *, run_seconds: float) -> NoOpNodes:
    instance = instance_type_named("trn1.2xlarge")
    return NoOpNodes(
        api, [NodeSpec(name=f"quiet-{index}", instance_type=instance) for index in range(3)], run_seconds=run_seconds
    )


def job(num_pods: int) -> dict[str, Any]:
    environment = {"TRAINFLOW_RUN_ID": RUN_ID, "TRAINFLOW_STAGE": "training"}
    container = {
        "name": "main",
        "image": "none",
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    template = {"metadata": {"labels": {"of": "job"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "quiet"},
        "spec": {
            "completionMode": "Indexed",
            "completions": num_pods,
            "parallelism": num_pods,
            "template": template,
        },
    }


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def text(kubeconfig: Path, path: str) -> str:
    connection = load_connection(kubeconfig)
    pool = urllib3.PoolManager(ssl_context=connection.tls)
    headers = {"Authorization": str(connection.authorization())}
    return pool.request("GET", connection.server + path, headers=headers).data.decode()


def test_a_job_of_no_op_pods_succeeds_and_each_pod_says_who_it_is(api: KubernetesApi, kubeconfig: Path) -> None:
    fleet = nodes(api, run_seconds=0.0)
    fleet.start()
    try:
        api.create(JOB, job(3))
        assert until(lambda: (api.get(f"{JOB}/quiet")["status"]).get("succeeded") == 3)
        for pod in api.get(PODS)["items"]:
            name, index = pod["metadata"]["name"], pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
            said = text(kubeconfig, f"{PODS}/{name}/log").splitlines()
            assert said[0] == f"run {RUN_ID} pod {name} rank {index}"
            losses = [f"step_loss : {step_loss(RUN_ID, step):.4f}" for step in range(1, STEPS + 1)]
            assert [any(loss in line for line in said) for loss in losses] == [index == "0"] * STEPS
    finally:
        fleet.stop()
    assert api.get("/api/v1/nodes")["items"] == []


def test_a_pod_that_runs_on_goes_when_it_is_deleted(api: KubernetesApi) -> None:
    fleet = nodes(api, run_seconds=3600.0)
    fleet.start()
    try:
        api.create(JOB, job(2))
        assert until(lambda: api.get(f"{JOB}/quiet")["status"].get("ready") == 2)
        api.delete(f"{JOB}/quiet", {"propagationPolicy": "Background"})
        assert until(lambda: not api.get(PODS)["items"])
    finally:
        fleet.stop()


def test_the_server_counts_its_requests(api: KubernetesApi, kubeconfig: Path) -> None:
    for _ in range(2):
        api.get(PODS, labelSelector="of=job", limit="1")
    line = 'apiserver_request_total{group="",version="v1",resource="pods",subresource="",verb="LIST"} 2'
    assert line in text(kubeconfig, "/metrics").splitlines()


def test_a_list_by_label_finds_what_has_the_label_now(api: KubernetesApi) -> None:
    path = "/api/v1/namespaces/default/configmaps"

    def labelled(selector: str) -> list[str]:
        return [found["metadata"]["name"] for found in api.get(path, labelSelector=selector)["items"]]

    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        manifest = {"metadata": {"name": name, "labels": {"colour": colour, "all": "yes"}}}
        api.create(path, {"apiVersion": "v1", "kind": "ConfigMap", **manifest})
    assert labelled("colour=red") == ["a", "b"]
    assert labelled("all=yes,colour!=red") == ["c"]
    api.patch(f"{path}/a", {"metadata": {"labels": {"colour": "blue"}}})
    assert (labelled("colour=red"), labelled("colour=blue,all=yes")) == (["b"], ["a", "c"])
    api.delete(f"{path}/b")
    assert labelled("colour=red") == []
    assert labelled("colour in (red, blue)") == ["a", "c"]
