"""`trainflow doctor` against the twin's cluster: a gang whose rank 0 listens, and one whose rank 0 does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection, write_kubeconfig
from kubetwin.node.shape import write_shape
from kubetwin_testing.cluster import command, eventually
from rich.console import Console

from local.node_shapes import instance_shape
from local.shared_storage import offer
from trainflow.cli.doctor import DoctorError, doctor
from trainflow.nodes.instances import INSTANCE_TYPES
from trainflow.protocol.pods import CLAIM, SERVICE_ACCOUNT

NAMESPACE = "training"
LISTEN = """
import socket, sys, time
words = dict(zip(sys.argv, sys.argv[1:]))
server = socket.create_server(("127.0.0.1", int(words["--master_port"]))) if words["--listen"] == "yes" else None
time.sleep(600)
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster")
    shape = folder / "shape.json"
    write_shape(shape, instance_shape(INSTANCE_TYPES["trn1.32xlarge"]))
    with command("--state", str(folder), "--shape", str(shape), "--env", "AWS_ACCESS_KEY_ID=twin") as (_, ready):
        file = Path(ready["kubeconfig"])
        offer(ApiClient(load_connection(file)), folder / "volumes", namespace=NAMESPACE)
        yield file


def start(kubeconfig: Path, run: str, *, port: int, listens: bool, **resources: Any) -> None:
    """A gang of one node, as the manifests of a run have it."""
    api, name = ApiClient(load_connection(kubeconfig)), f"{run}-training-1"
    labels = {"trainflow/run": run, "trainflow/stage": "training", "trainflow/attempt": "1"}
    base = f"/api/v1/namespaces/{NAMESPACE}"
    selector = {"batch.kubernetes.io/job-name": name}
    api.create(f"{base}/services", {"metadata": {"name": name}, "spec": {"clusterIP": "None", "selector": selector}})
    words = ["--master_addr", f"{name}-0.{name}", "--master_port", str(port), "--listen", "yes" if listens else "no"]
    container = {
        "name": "training",
        "image": "trainer:1",
        "command": [sys.executable, "-c", LISTEN, "torchrun", *words],
        "env": [{"name": "TRAINFLOW_CACHE_DIR", "value": "/cache/demo"}],
        "volumeMounts": [{"name": "shared", "mountPath": f"/{f}", "subPath": f} for f in ("runs", "cache")],
        "resources": {"limits": resources, "requests": resources},
    }
    spec = {
        "restartPolicy": "Never",
        "subdomain": name,
        "serviceAccountName": SERVICE_ACCOUNT,
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}],
        "containers": [container],
    }
    job = {"completions": 1, "completionMode": "Indexed", "backoffLimit": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    api.create(
        f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
        {"metadata": {"name": name, "labels": labels}, "spec": {**job, "template": template}},
    )
    wanted = "Pending" if "example.com/missing" in resources else "Running"

    def phases() -> bool:
        pods = api.get(f"{base}/pods", labelSelector=f"trainflow/run={run}")["items"]
        return [pod["status"].get("phase") for pod in pods] == [wanted]

    eventually(phases, f"the pod is {wanted}")


def examined(kubeconfig: Path, run: str) -> tuple[int, list[str]]:
    console = Console(file=StringIO(), width=1000)
    status = doctor(run, kubeconfig=kubeconfig, namespace=NAMESPACE, console=console)
    assert isinstance(console.file, StringIO)
    return status, console.file.getvalue().splitlines()


def starting_with(lines: list[str], start: str) -> str:
    [found] = [line for line in lines if line.startswith(start)]
    return found


def without_commands(kubeconfig: Path, file: Path) -> Path:
    """The kubeconfig of one who may read all that the doctor reads and start pods, and may run no commands in them."""
    api, name = ApiClient(load_connection(kubeconfig)), "reader"
    reads = ["pods", "pods/log", "nodes", "events", "services", "serviceaccounts", "persistentvolumeclaims"]
    rules = [
        {"apiGroups": [""], "resources": reads, "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]},
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": name}})
    api.create(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    api.create(f"{rbac}/clusterrolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": role})
    token = api.create(f"{accounts}/{name}/token", {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"})
    authority = api.authority_pem
    assert authority is not None
    write_kubeconfig(file, endpoint=api.server, ca_pem=authority, token=token["status"]["token"])
    return file


def test_a_run_in_good_order_passes_and_nothing_of_the_doctor_stays(kubeconfig: Path, tmp_path: Path) -> None:
    start(kubeconfig, "well-0a1b", port=23401, listens=True, **{"aws.amazon.com/neuron": "16"})
    status, lines = examined(without_commands(kubeconfig, tmp_path / "reader"), "well-0a1b")
    ping = starting_with([line for line in lines if "rendezvous ping" in line], "")
    assert ping.startswith("ok ") or "this pod may not send echo requests" in ping  # as this machine's kernel allows
    assert [line for line in lines if line != ping and not line.startswith("ok ")] == []
    full = "well-0a1b-training-1-0.well-0a1b-training-1.training.svc.cluster.local"
    assert full in starting_with(lines, "ok      rendezvous full name:")
    assert status == 0
    assert "every node offers the 16" in starting_with(lines, "ok      aws.amazon.com/neuron:")
    assert "writable" in starting_with(lines, "ok      cache folder /cache:")
    assert "well-0a1b-training-1-0.well-0a1b-training-1:23401" in starting_with(lines, "ok      rendezvous port:")
    pods = ApiClient(load_connection(kubeconfig)).get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector="trainflow/doctor"
    )
    assert pods["items"] == []


def test_a_pod_that_does_not_see_its_devices_is_found_by_a_command_in_it(kubeconfig: Path) -> None:
    start(kubeconfig, "blind-0a1b", port=23404, listens=True, **{"aws.amazon.com/neuron": "0"})
    api, base = ApiClient(load_connection(kubeconfig)), f"/api/v1/namespaces/{NAMESPACE}"
    assert examined(kubeconfig, "blind-0a1b")[0] == 0
    assert api.get(f"{base}/pods", labelSelector="trainflow/doctor")["items"] == []
    api.delete(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/blind-0a1b-training-1", {"propagationPolicy": "Background"})
    api.delete(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/well-0a1b-training-1", {"propagationPolicy": "Background"})
    start(kubeconfig, "given-0a1b", port=23405, listens=True, **{"aws.amazon.com/neuron": "16"})
    status, lines = examined(kubeconfig, "given-0a1b")
    assert status == 1
    assert "sees 0 devices of the 16 that it was given" in starting_with(lines, "failed  aws.amazon.com/neuron:")


def test_a_rank_0_that_does_not_listen_is_found(kubeconfig: Path) -> None:
    start(kubeconfig, "deaf-0a1b", port=23402, listens=False)
    status, lines = examined(kubeconfig, "deaf-0a1b")
    assert status == 1
    [failure] = [line for line in lines if line.startswith("failed ")]
    assert failure.startswith("failed  rendezvous port: deaf-0a1b-training-1-0.deaf-0a1b-training-1:23402: ")
    assert "security group" in failure


def test_a_pod_that_finds_no_node_is_explained_with_the_schedulers_words(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(kubeconfig, "stuck-0a1b", port=23403, listens=True, **{"example.com/missing": "1"})
    status, lines = examined(kubeconfig, "stuck-0a1b")
    assert status == 1
    assert "Insufficient example.com/missing" in starting_with(lines, "failed  pods:")
    assert starting_with(lines, "skipped rendezvous:")

    capsys.readouterr()
    console = Console(file=StringIO())
    assert doctor("stuck-0a1b", kubeconfig=kubeconfig, namespace=NAMESPACE, console=console, as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["run_id"]) == (1, "stuck-0a1b")
    (pods,) = [finding for finding in document["findings"] if finding["check"] == "pods"]
    assert pods.keys() == {"check", "outcome", "seen", "advice"}
    assert (pods["outcome"], "Insufficient example.com/missing" in pods["seen"]) == ("failed", True)


def test_a_kubeconfig_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match=r"--kubeconfig: .*/missing'.*used"):
        doctor("r", kubeconfig=tmp_path / "missing", namespace=NAMESPACE, console=Console(file=StringIO()))
