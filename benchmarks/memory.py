"""Memory of the twin's API server while thousands of pods come and go.

The server is a process of its own, and its nodes another one; its pods do nothing. Resident memory is read before the
first pod, when all pods have succeeded, when the last one is gone, and once the server has released what it keeps for
watches: changes of the last 75 seconds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin.node.shape import NodeShape, write_shape
from kubetwin.store import FRESH_SECONDS

from benchmarks.kubetwin_process import kubetwin_process, next_line
from benchmarks.result import BenchmarkFailed, Result, this_machine

NUM_PODS = 5000
NUM_NODES = 5
PATIENCE_SECONDS = 600.0
RELEASE_SECONDS = FRESH_SECONDS + 30
"""Two rounds of the server's expiry beyond the age of the changes that it keeps."""

PODS = "/api/v1/namespaces/default/pods"
MIB = 2**20


def run() -> Result:
    """Measures one server.

    Raises:
        BenchmarkFailed: If the cluster does not start, or the pods do not come and go in ten minutes.
    """
    with tempfile.TemporaryDirectory(prefix="trainflow-memory-") as name:
        folder = Path(name)
        kubeconfig, log, shape = folder / "kubeconfig", folder / "log", folder / "shape.json"
        room = {"cpu": "4000", "memory": "4000Gi", "pods": str(NUM_PODS)}
        write_shape(shape, NodeShape(capacity=room, allocatable=room))
        names = [word for number in range(NUM_NODES) for word in ("--name", f"node-{number}")]
        node = ("node", "--kubeconfig", str(kubeconfig), "--no-op", "1", "--shape", str(shape), *names)
        with kubetwin_process(log, "--nodes", "0", "--kubeconfig", str(kubeconfig)) as server:
            next_line(server, log)
            with kubetwin_process(log, *node) as nodes:
                for _ in range(NUM_NODES):
                    next_line(nodes, log)
                api = ApiClient(load_connection(kubeconfig))
                _wait(lambda: bool(api.find("/api/v1/namespaces/default/serviceaccounts/default")))
                return _measured(api, psutil.Process(server.pid))


def _measured(api: ApiClient, server: psutil.Process) -> Result:
    mebibytes = {"before": _resident(server)}
    began, processor = time.monotonic(), sum(server.cpu_times()[:2])
    for number in range(NUM_PODS):
        api.create(PODS, _pod(f"pod-{number}"))
    created = time.monotonic()
    _wait(lambda: not api.get(f"{PODS}?fieldSelector=status.phase!=Succeeded&limit=1")["items"])
    succeeded = time.monotonic()
    mebibytes["all_pods"] = _resident(server)
    api.delete(PODS)
    _wait(lambda: not api.get(f"{PODS}?limit=1")["items"])
    gone = time.monotonic()
    mebibytes["no_pods"] = _resident(server)
    busy = sum(server.cpu_times()[:2]) - processor
    time.sleep(RELEASE_SECONDS)
    mebibytes["released"] = _resident(server)
    return Result(
        benchmark="memory",
        ratios={"released_over_before": round(mebibytes["released"] / mebibytes["before"], 2)},
        seconds={
            "create": round(created - began, 1),
            "succeed": round(succeeded - created, 1),
            "delete": round(gone - succeeded, 1),
            "server_processor": round(busy, 1),
        },
        machine=this_machine(),
        details={"pods": NUM_PODS, "resident_mib": mebibytes},
    )


def _pod(name: str) -> dict[str, object]:
    container = {"name": "c", "image": "busybox", "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def _resident(process: psutil.Process) -> float:
    return round(process.memory_info().rss / MIB, 1)


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"The pods did not come and go in {PATIENCE_SECONDS:g} s.")
        time.sleep(0.5)
