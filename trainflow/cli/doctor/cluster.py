"""The Kubernetes API as the doctor needs it, as plain dictionaries."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from kubernetes import client, config, stream
from urllib3.exceptions import HTTPError
from websocket import WebSocketException

from trainflow.kubernetes.connection import kubernetes_settings

Object = Mapping[str, Any]

CONNECT_SECONDS, READ_SECONDS = 5.0, 30.0
EXEC_SECONDS = 60.0
POLL_SECONDS = 0.5


class DoctorError(Exception):
    """The run cannot be examined; the message says why and what to do."""


class CannotLook(Exception):
    """No pod could look around from inside; the message says why."""


class Cluster(Protocol):
    """One namespace of a cluster, and its nodes."""

    def get(self, path: str, **query: str) -> Object | None:
        """An object or a list; None if there is none. The path begins behind `/api/v1/`."""

    def create(self, path: str, body: Object) -> Object:
        """Makes an object."""

    def delete(self, path: str) -> None:
        """Deletes an object; one that is gone is no error."""

    def execute(self, pod: str, container: str, command: Sequence[str]) -> str:
        """What a command in a running container prints.

        Raises:
            CannotLook: If the command could not be run.
        """


class KubernetesCluster:
    """`Cluster` of a real API server (the twin's included)."""

    def __init__(self, kubeconfig: Path | None) -> None:
        """Reads the kubeconfig; makes no request yet.

        Raises:
            DoctorError: If the kubeconfig cannot be used.
        """
        try:
            configuration = kubernetes_settings(kubeconfig)
        except (config.ConfigException, OSError) as unusable:
            named = f"'{kubeconfig}'" if kubeconfig else "of this shell (KUBECONFIG or ~/.kube/config)"
            raise DoctorError(f"--kubeconfig: the file {named} cannot be used: {unusable}") from None
        configuration.retries = False
        self._api = client.ApiClient(configuration)
        self._streaming = client.ApiClient(configuration)  # the stream module changes its client for good

    def get(self, path: str, **query: str) -> Object | None:
        """See `Cluster`."""
        try:
            return self._call("GET", path, query=query)
        except client.ApiException as refused:
            if refused.status == 404:
                return None
            raise _explained(refused, f"read {path}") from None

    def create(self, path: str, body: Object) -> Object:
        """See `Cluster`."""
        try:
            return self._call("POST", path, body=body)
        except client.ApiException as refused:
            raise _explained(refused, f"make {path}") from None

    def delete(self, path: str) -> None:
        """See `Cluster`."""
        with suppress(client.ApiException):
            self._call("DELETE", path, query={"gracePeriodSeconds": "0"})

    def execute(self, pod: str, container: str, command: Sequence[str]) -> str:
        """See `Cluster`."""
        namespace, _, name = pod.partition("/")
        connect = client.CoreV1Api(self._streaming).connect_get_namespaced_pod_exec
        try:
            answer = stream.stream(
                connect,
                name,
                namespace,
                container=container,
                command=list(command),
                stdout=True,
                stderr=False,
                _request_timeout=EXEC_SECONDS,
            )
        except (client.ApiException, WebSocketException, OSError, ValueError) as refused:
            raise CannotLook(f"{name} does not take commands: {refused}") from None
        return str(answer)

    def _call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Object | None = None
    ) -> Object:
        try:
            response = self._api.call_api(
                f"/api/v1/{path}",
                method,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=(CONNECT_SECONDS, READ_SECONDS),
            )
            answer: dict[str, Any] = json.loads(response.read())
        except (HTTPError, OSError, ValueError) as unreachable:
            raise DoctorError(f"The cluster does not answer: {unreachable}") from None
        return answer


def _explained(refused: client.ApiException, wish: str) -> DoctorError:
    try:
        reason = json.loads(refused.body)["message"]
    except (ValueError, KeyError, TypeError):
        reason = refused.reason
    return DoctorError(f"The cluster did not let the doctor {wish} ({refused.status}): {reason}")


def run_pod(cluster: Cluster, namespace: str, manifest: Object, *, seconds: float) -> str:
    """Run a pod to its end and take it away again.

    Returns:
        What it left as its termination message.

    Raises:
        CannotLook: If it did not end well in time.
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
        pod = cluster.get(path)
        if pod is None:
            raise CannotLook("the pod that was to look was deleted by somebody else")
        status = pod.get("status") or {}
        states = [s.get("state") or {} for s in status.get("containerStatuses") or []]
        ended = next((state["terminated"] for state in states if "terminated" in state), None)
        if ended is not None and ended["exitCode"] == 0:
            return str(ended.get("message", ""))
        if ended is not None or status.get("phase") == "Failed":
            said = (ended or status).get("message") or (ended or status).get("reason") or "it says nothing"
            raise CannotLook(f"the pod that was to look has failed: {said.strip().splitlines()[-1]}")
        if time.monotonic() >= end:
            raise CannotLook(f"the pod that was to look does not run: {_why_not(states, status)}")
        pause(POLL_SECONDS)


def _why_not(states: Sequence[Object], status: Object) -> str:
    waiting = next((state["waiting"] for state in states if "waiting" in state), None)
    if waiting is not None:
        return str(waiting.get("message") or waiting.get("reason"))
    conditions = status.get("conditions") or []
    told = (c.get("message") for c in conditions if c["status"] == "False" and c.get("message"))
    return next((str(text) for text in told), str(status.get("phase", "Pending")))


def random_suffix() -> str:
    """Five hex digits for a name."""
    return secrets.token_hex(3)[:5]
