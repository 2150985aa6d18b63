"""Probes and hooks of containers, on a process node."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin_testing.cluster import Cluster, command, eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with command("--state", str(tmp_path_factory.mktemp("cluster"))) as (_, ready):
        yield Cluster(Path(ready["kubeconfig"]), tmp_path_factory.mktemp("files"), f"t-{uuid.uuid4().hex[:8]}")


def probe(*argv: str, **settings: int) -> dict[str, Any]:
    return {"exec": {"command": list(argv)}, "periodSeconds": 1, "failureThreshold": 1, **settings}


def only(status: dict[str, Any]) -> dict[str, Any]:
    [container] = status.get("containerStatuses") or [{}]
    return dict(container)


def ready(status: dict[str, Any]) -> bool:
    return {c["type"]: c["status"] for c in status["conditions"]}.get("Ready") == "True"


def events(cluster: Cluster, name: str) -> dict[str, str]:
    found = cluster.api.get(cluster.path("events"), fieldSelector=f"involvedObject.name={name}")["items"]
    return {event["reason"]: event["message"] for event in found}


def test_a_container_is_ready_when_its_readiness_probe_says_so(cluster: Cluster) -> None:
    container = {"readinessProbe": probe("test", "-e", "/tmp/go")}
    mount = {"volumeMounts": [{"name": "t", "mountPath": "/tmp"}]}
    cluster.run(
        "slow",
        "sleep 2; touch $TMPDIR/go; exec sleep 600",
        container={**container, **mount},
        volumes=[{"name": "t", "emptyDir": {}}],
        terminationGracePeriodSeconds=0,
    )
    running = cluster.wait_for("slow", lambda status: "running" in only(status).get("state", {}), "it runs")
    assert not ready(running["status"])
    cluster.wait_for("slow", ready, "it is ready")
    assert events(cluster, "slow")["Unhealthy"].startswith("Readiness probe failed: ")


def test_a_container_whose_liveness_probe_fails_is_restarted(cluster: Cluster) -> None:
    container = {
        "livenessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 2},
        "lifecycle": {"preStop": {"exec": {"command": ["false"]}}},
    }
    cluster.run("dead", "exec sleep 600", container=container, restartPolicy="Always", terminationGracePeriodSeconds=1)
    cluster.wait_for("dead", lambda status: only(status).get("lastState", {}).get("terminated"), "it was ended")
    assert "FailedPreStopHook" in events(cluster, "dead"), "its hook was run"
    assert events(cluster, "dead")["Killing"] == "Container c failed liveness probe, will be restarted"
    cluster.delete("dead")


def test_a_startup_probe_holds_back_the_others(cluster: Cluster) -> None:
    container = {
        "startupProbe": probe("false", failureThreshold=4),
        "livenessProbe": probe("false"),
        "readinessProbe": probe("true"),
    }
    cluster.run("start", "exec sleep 600", container=container, terminationGracePeriodSeconds=0)
    ended = cluster.end_of("start")
    assert ended["exitCode"] in (137, 143)
    assert "failed startup probe" in events(cluster, "start")["Killing"]


def test_a_container_is_asked_over_http_whether_it_is_ready(cluster: Cluster) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = {"httpGet": {"path": "/made", "port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
    container = {
        "command": ["sh", "-c", f"sleep 2; touch made; exec python3 -m http.server {port} --bind 127.0.0.1"],
        "ports": [{"name": "web", "containerPort": port}],
        "readinessProbe": asked,
    }
    cluster.run("web", "", container=container, terminationGracePeriodSeconds=0)
    running = cluster.wait_for("web", lambda status: "running" in only(status).get("state", {}), "it runs")
    assert not ready(running["status"])
    cluster.wait_for("web", ready, "it is ready")
    assert events(cluster, "web")["Unhealthy"].startswith('Readiness probe failed: Get "http://127.0.0.1:')
    cluster.delete("web")


def test_a_container_whose_hook_fails_after_its_start_is_ended(cluster: Cluster) -> None:
    for name, words in (("well", ["true"]), ("ill", ["sh", "-c", "echo secret; exit 1"])):
        hook = {"lifecycle": {"postStart": {"exec": {"command": words}}}}
        cluster.run(name, "exec sleep 600", container=hook, terminationGracePeriodSeconds=1)
    assert cluster.end_of("ill")["exitCode"] == 143
    assert events(cluster, "ill")["FailedPostStartHook"] == "PostStartHook failed"
    assert events(cluster, "ill")["Killing"] == "FailedPostStartHook"
    assert cluster.phase("well", "Running")
    cluster.delete("well")


def test_a_container_is_asked_to_end_after_its_hook(cluster: Cluster) -> None:
    script = "trap 'test -e $HOOK && touch $HOOK-before; exit 0' TERM; echo up; while true; do sleep 0.1; done"
    words = ["sh", "-c", "sleep 1; touch $HOOK"]
    hook = {"lifecycle": {"preStop": {"exec": {"command": words}}}, "env": [{"name": "HOOK", "value": "/data/hook"}]}
    folder = cluster.folder / "hooks"
    folder.mkdir()
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/data"}]}
    volumes = [{"name": "d", "hostPath": {"path": str(folder)}}]
    cluster.run("hooked", script, container={**hook, **mount}, volumes=volumes, terminationGracePeriodSeconds=20)
    eventually(lambda: cluster.phase("hooked", "Running") and "up" in cluster.log("hooked"), "it prints")
    cluster.delete("hooked")
    assert (folder / "hook-before").exists(), "the hook was over when the container was asked to end"
