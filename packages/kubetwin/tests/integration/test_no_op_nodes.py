"""Nodes whose pods run no program, against kubetwin's API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection, write_kubeconfig
from kubetwin.node.no_op import NoOpNodes
from kubetwin.node.registration import NodeSpec
from kubetwin.node.shape import this_machine
from kubetwin.server import ApiServer

JOB = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with ApiServer() as server:
        path = tmp_path / "kubeconfig"
        write_kubeconfig(path, endpoint=server.endpoint, ca_pem=server.ca_pem, token=server.admin_token)
        yield path


@pytest.fixture
def api(kubeconfig: Path) -> ApiClient:
    return ApiClient(load_connection(kubeconfig))


def nodes(api: ApiClient, folder: Path, *, run_seconds: float, **options: Any) -> NoOpNodes:
    specs = [NodeSpec(name=f"quiet-{index}", shape=this_machine()) for index in range(3)]
    return NoOpNodes(api, specs, folder, run_seconds=run_seconds, **options)


def greetings(pod: Mapping[str, Any]) -> Iterator[str]:
    variable = pod["spec"]["containers"][0]["env"][0]
    for _ in range(2):
        yield f"{variable['value']} from {pod['metadata']['name']}"


def job(num_pods: int) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "env": [{"name": "GREETING", "value": "hello"}]}
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


@pytest.mark.parametrize(
    ("options", "form"),
    [({}, "pod {name} runs no program\n"), ({"log_lines": greetings}, "hello from {name}\nhello from {name}\n")],
    ids=["default", "caller's function"],
)
def test_a_job_of_no_op_pods_succeeds_and_each_pod_prints_its_lines(
    api: ApiClient, kubeconfig: Path, tmp_path: Path, options: dict[str, Any], form: str
) -> None:
    fleet = nodes(api, tmp_path, run_seconds=0.0, **options)
    fleet.start()
    try:
        api.create(JOB, job(3))
        assert until(lambda: (api.get(f"{JOB}/quiet")["status"]).get("succeeded") == 3)
        names = [pod["metadata"]["name"] for pod in api.get(PODS)["items"]]
        assert {name: text(kubeconfig, f"{PODS}/{name}/log") for name in names} == {
            name: form.format(name=name) for name in names
        }
    finally:
        fleet.stop()
    assert api.get("/api/v1/nodes")["items"] == []


def test_a_pod_whose_log_function_raises_fails_and_names_the_exception(
    api: ApiClient, kubeconfig: Path, tmp_path: Path
) -> None:
    def broken(pod: Mapping[str, Any]) -> Iterator[str]:
        yield "first"
        raise ValueError("no second line")

    fleet = nodes(api, tmp_path, run_seconds=0.0, log_lines=broken)
    fleet.start()
    try:
        container = {"name": "main", "image": "none"}
        api.create(PODS, {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never", "containers": [container]}})
        assert until(lambda: api.get(f"{PODS}/p")["status"]["phase"] == "Failed")
        printed = text(kubeconfig, f"{PODS}/p/log")
        assert printed == "first\nthe function of the log lines failed: ValueError('no second line')\n"
    finally:
        fleet.stop()


def test_a_running_pod_is_removed_when_it_is_deleted(api: ApiClient, tmp_path: Path) -> None:
    fleet = nodes(api, tmp_path, run_seconds=3600.0)
    fleet.start()
    try:
        api.create(JOB, job(2))
        assert until(lambda: api.get(f"{JOB}/quiet")["status"].get("ready") == 2)
        api.delete(f"{JOB}/quiet", {"propagationPolicy": "Background"})
        assert until(lambda: not api.get(PODS)["items"])
    finally:
        fleet.stop()


def test_the_server_counts_its_requests(api: ApiClient, kubeconfig: Path) -> None:
    for _ in range(2):
        api.get(PODS, labelSelector="of=job", limit="1")
    line = 'apiserver_request_total{group="",version="v1",resource="pods",subresource="",verb="LIST"} 2'
    assert line in text(kubeconfig, "/metrics").splitlines()


def test_a_list_by_label_finds_what_has_the_label_now(api: ApiClient) -> None:
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
