"""`python -m kubetwin` as a process of a test, and a client of its cluster."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

WAIT_SECONDS = 60.0
T = TypeVar("T")

LEAKED = "A_VARIABLE_OF_THE_NODE"
"""Name of a variable that every started command has and that no container may see."""


def eventually(poll: Callable[[], T | None], what: str) -> T:
    """Polls until `poll` returns something other than None and False, and returns that.

    Args:
        poll: Called every 50 ms, for at most a minute.
        what: The expected event; named when the time is over and the test fails.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while time.monotonic() < deadline:
        if (found := poll()) is not None and found is not False:
            return found
        pause.wait(0.05)
    pytest.fail(f"never happened: {what}")


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Runs `python -m kubetwin …` inside the block; yields the process and the first line that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kubetwin", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, LEAKED: "secret", "PYTHONFAULTHANDLER": "1"},
    )
    with process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
            line = process.stdout.readline() if ready else ""
            assert line, "the command ended or printed nothing"
            yield process, json.loads(line)
        finally:
            process.terminate()
            try:
                process.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # faulthandler prints what every thread does
                raise
            finally:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                process.kill()


class Cluster:
    """A client of a cluster in a new namespace."""

    def __init__(self, kubeconfig: Path, folder: Path, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.api = ApiClient(load_connection(kubeconfig))
        self.namespace = namespace
        self.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        eventually(lambda: self.api.find(self.path("serviceaccounts/default")), "the default service account")

    def path(self, below: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{below}"

    def create(self, kind: str, name: str, **body: Any) -> dict[str, Any]:
        return self.api.create(self.path(kind), {"metadata": {"name": name}, **body})

    def run(self, name: str, script: str, *, container: dict[str, Any] | None = None, **spec: Any) -> str:
        """Creates a pod whose one container runs a shell script, and returns its name."""
        only = {"name": "c", "image": "busybox", "command": ["sh", "-c", script], **(container or {})}
        self.create("pods", name, spec={"restartPolicy": "Never", "containers": [only], **spec})
        return name

    def pod(self, name: str) -> dict[str, Any] | None:
        return self.api.find(self.path(f"pods/{name}"))

    def wait_for(self, name: str, holds: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        def poll() -> dict[str, Any] | None:
            pod = self.pod(name)
            return pod if pod is not None and holds(pod["status"]) else None

        return eventually(poll, f"pod {name}: {what}")

    def phase(self, name: str, *phases: str) -> dict[str, Any]:
        """The pod's status once it is in one of the phases."""
        status = self.wait_for(name, lambda status: status["phase"] in phases, f"phase {phases}")["status"]
        assert isinstance(status, dict)
        return status

    def end_of(self, name: str) -> dict[str, Any]:
        """The terminated state of the pod's one container."""
        [container] = self.phase(name, "Succeeded", "Failed")["containerStatuses"]
        terminated = container["state"]["terminated"]
        assert isinstance(terminated, dict)
        return terminated

    def log(self, name: str, **query: str) -> str:
        return b"".join(self.follow(name, **query)).decode()

    def follow(self, name: str, **query: str) -> Iterator[bytes]:
        response = self.api._open("GET", self.path(f"pods/{name}/log"), query)
        yield from response.stream()

    def delete(self, name: str) -> None:
        self.api.delete(self.path(f"pods/{name}"))
        eventually(lambda: self.pod(name) is None, f"pod {name} is gone")
