"""The Kubernetes API as the doctor needs it, as plain dictionaries."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from trainflow.errors import ClusterAccessDenied, ClusterUnavailable
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.connection import from_kubeconfig
from trainflow.kubernetes.faults import CommandNotRun, KubeconfigInvalid, RequestRefused
from trainflow.observed.containers import workload
from trainflow.observed.pod import read_pod

Object = Mapping[str, Any]

READ_SECONDS = 30.0
POLL_SECONDS = 0.5


class DoctorError(Exception):
    """The run cannot be examined; the message says why and what to do."""


class ProbeFailed(Exception):
    """No pod could run the checks from inside of the cluster; the message says why."""


class Cluster(Protocol):
    """One namespace of a cluster, and its nodes."""

    def get(self, path: str, **query: str) -> Object | None:
        """An object or a list at a path below `/api/v1/`; None if it does not exist."""

    def create(self, path: str, body: Object) -> Object:
        """Makes an object."""

    def delete(self, path: str) -> None:
        """Delete an object, if it still exists."""

    def execute(self, pod: str, container: str, command: Sequence[str]) -> str:
        """Run a command in a running container, and return its output.

        Raises:
            ProbeFailed: If the command could not be run.
        """


class KubernetesCluster:
    """`Cluster` of a real API server (the twin's included)."""

    def __init__(self, kubeconfig: Path | None, *, api: KubernetesApi | None = None) -> None:
        """Reads the kubeconfig; makes no request yet.

        Args:
            kubeconfig: The cluster; as kubectl chooses if not given.
            api: The cluster, where it is known otherwise.

        Raises:
            DoctorError: If the kubeconfig cannot be used.
        """
        try:
            self._api = api or KubernetesApi(from_kubeconfig(kubeconfig), read_seconds=READ_SECONDS)
        except KubeconfigInvalid as unusable:
            raise DoctorError(f"--kubeconfig: {unusable}") from None

    def get(self, path: str, **query: str) -> Object | None:
        """See `Cluster`."""
        with _explained(f"read {path}"):
            found: Object | None = self._api.find(f"/api/v1/{path}", query=list(query.items()))
        return found

    def create(self, path: str, body: Object) -> Object:
        """See `Cluster`."""
        with _explained(f"make {path}"):
            made: Object = self._api.call("POST", f"/api/v1/{path}", body=body)
        return made

    def delete(self, path: str) -> None:
        """See `Cluster`."""
        with suppress(RequestRefused, ClusterAccessDenied, ClusterUnavailable):
            self._api.delete(f"/api/v1/{path}", grace_period_seconds=0)

    def execute(self, pod: str, container: str, command: Sequence[str]) -> str:
        """See `Cluster`."""
        namespace, _, name = pod.partition("/")
        try:
            return self._api.execute(namespace, name, container, command)
        except CommandNotRun as refused:
            raise ProbeFailed(str(refused)) from None


@contextmanager
def _explained(wish: str) -> Iterator[None]:
    try:
        yield
    except (RequestRefused, ClusterAccessDenied) as refused:
        raise DoctorError(f"The cluster did not let the doctor {wish}: {refused}") from None
    except ClusterUnavailable as unreachable:
        raise DoctorError(str(unreachable)) from None


def run_pod(cluster: Cluster, namespace: str, manifest: Object, *, seconds: float) -> str:
    """Run a pod to its end and delete it.

    Returns:
        What it left as its termination message.

    Raises:
        ProbeFailed: If it did not end well in time.
    """
    pods = f"namespaces/{namespace}/pods"
    name = manifest["metadata"]["name"]
    cluster.create(pods, manifest)
    try:
        return _result(cluster, f"{pods}/{name}", time.monotonic() + seconds, time.sleep)
    finally:
        cluster.delete(f"{pods}/{name}")


def _result(cluster: Cluster, path: str, end: float, pause: Callable[[float], None]) -> str:
    while True:
        manifest = cluster.get(path)
        if manifest is None:
            raise ProbeFailed("the probe pod was deleted by another client")
        pod = read_pod(manifest)
        if pod.exit_code == 0:
            return pod.termination_message or ""
        if pod.exit_code is not None or pod.phase == "Failed":
            said = pod.termination_message or pod.end_reason or "it says nothing"
            raise ProbeFailed(f"the probe pod has failed: {said.strip().splitlines()[-1]}")
        if time.monotonic() >= end:
            raise ProbeFailed(f"the probe pod does not run: {_why_not(manifest)}")
        pause(POLL_SECONDS)


def _why_not(pod: Object) -> str:
    waiting, status = workload(pod).waiting, pod.get("status") or {}
    if waiting:
        return str(waiting.get("message") or waiting.get("reason"))
    conditions = status.get("conditions") or []
    told = (c.get("message") for c in conditions if c["status"] == "False" and c.get("message"))
    return next((str(text) for text in told), str(status.get("phase", "Pending")))


def random_suffix() -> str:
    """Five hex digits for a name."""
    return secrets.token_hex(3)[:5]
