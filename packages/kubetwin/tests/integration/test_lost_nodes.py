"""A node that falls silent is lost, and its pods with it, as the node lifecycle of Kubernetes has it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from kubetwin_testing.cluster import Cluster, command, eventually

UNREACHABLE = "node.kubernetes.io/unreachable"
PATIENT = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}


@contextmanager
def node(cluster: Cluster, name: str) -> Iterator[Popen[str]]:
    options = ("--heartbeat-seconds", "0.5", "--pods-dir", str(cluster.folder / name))
    with command("node", "--kubeconfig", str(cluster.kubeconfig), "--name", name, *options) as (process, _):
        yield process


def ready_of(cluster: Cluster, name: str) -> str:
    conditions = cluster.api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
    return str(next(each["status"] for each in conditions if each["type"] == "Ready"))


def taints_of(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    taints = cluster.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints") or []
    return [(taint["key"], taint["effect"]) for taint in taints]


def conditions_of(pod: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each.get("reason", "")) for each in pod["status"]["conditions"]}


def test_the_pods_of_a_silent_node_are_deleted_after_the_time_that_they_tolerate_and_end_when_it_is_back(
    tmp_path: Path,
) -> None:
    times = ("--nodes", "0", "--node-grace-seconds", "4", "--default-toleration-seconds", "2")
    with command("--kubeconfig", str(tmp_path / "kubeconfig"), *times):
        cluster = Cluster(tmp_path / "kubeconfig", tmp_path, "lost")
        with node(cluster, "silent") as process, node(cluster, "well"):
            cluster.run("hurried", "exec sleep 600", nodeName="silent", terminationGracePeriodSeconds=1)
            cluster.run("patient", "exec sleep 600", nodeName="silent", tolerations=[PATIENT])
            cluster.run("elsewhere", "exec sleep 600", nodeName="well")
            for name in ("hurried", "patient", "elsewhere"):
                cluster.phase(name, "Running")
            process.send_signal(signal.SIGSTOP)
            try:
                eventually(lambda: ready_of(cluster, "silent") == "Unknown", "the node is lost")
                eventually(
                    lambda: taints_of(cluster, "silent") == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
                    "the node is tainted",
                )
                hurried = cluster.pod("hurried")
                assert hurried is not None
                assert "deletionTimestamp" not in hurried["metadata"], "it tolerates the taint for a while"
                eventually(
                    lambda: (cluster.pod("hurried") or {"metadata": {}})["metadata"].get("deletionTimestamp"),
                    "the pod is deleted",
                )
                hurried, patient, elsewhere = (cluster.pod(name) for name in ("hurried", "patient", "elsewhere"))
                assert hurried is not None, "no kubelet says that it has ended"
                assert hurried["status"]["phase"] == "Running"
                assert conditions_of(hurried)["DisruptionTarget"] == ("True", "DeletionByTaintManager")
                assert conditions_of(hurried)["Ready"][0] == "False"
                assert patient is not None
                assert "deletionTimestamp" not in patient["metadata"]
                assert elsewhere is not None
                assert "deletionTimestamp" not in elsewhere["metadata"]
                assert (ready_of(cluster, "well"), taints_of(cluster, "well")) == ("True", [])
            finally:
                process.send_signal(signal.SIGCONT)
            eventually(lambda: cluster.pod("hurried") is None, "the pod has ended")
            eventually(
                lambda: (ready_of(cluster, "silent"), taints_of(cluster, "silent")) == ("True", []), "it is back"
            )
            assert cluster.phase("patient", "Running")
