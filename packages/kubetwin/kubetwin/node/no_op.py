"""Nodes whose pods run no program: a kubelet's reports to the API, without processes.

They serve measurements with many pods: a thousand nodes, or hundreds of jobs, on one small machine.
Everything goes through the API, as with nodes that do run processes: registration, heartbeats, statuses, logs. A pod
prints lines that the caller computes from its manifest, and succeeds.
"""

from __future__ import annotations

import logging
import queue
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubetwin.background import Worker, submit, surviving
from kubetwin.client import STOP_ANSWER_SECONDS, ApiClient, ApiUnreachable, RequestRefused
from kubetwin.model import times
from kubetwin.node.kubelet_server import KubeletServer
from kubetwin.node.log_catalogue import Logs
from kubetwin.node.pod_watch import PodWatch
from kubetwin.node.pod_worker import final_delete_options
from kubetwin.node.registration import LEASE_NAMESPACE, NodeSpec, lease, node_object, node_status, unregister
from kubetwin.node.status import (
    ContainerStatus,
    PodState,
    Running,
    State,
    Terminated,
    by_type,
    pod_status,
    strategic_patch,
)

_LOG = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 30.0
"""The control plane marks a node as not ready after 50 s; more heartbeats of a thousand nodes would load the API."""

_BELIEVED_FOR = timedelta(seconds=45)
"""After a longer time without a heartbeat, a node may be marked as not ready: it reports again that it is ready."""

_HEARTS = 4
"""Number of threads for heartbeats."""

_WORKERS = 8
"""Number of concurrent requests: most of the time they wait for the server."""

LogLines = Callable[[Mapping[str, Any]], Iterable[str]]
"""Function from a pod's manifest to the lines that the pod prints."""


def default_log_lines(pod: Mapping[str, Any]) -> Iterator[str]:
    """One line that names the pod."""
    yield f"pod {pod['metadata']['name']} runs no program"


@dataclass
class _Pod:
    """A pod between its start and its end."""

    manifest: dict[str, Any]
    started_at: datetime
    exit_code: int = 0


class NoOpNodes:
    """Nodes of one process. Implements `pod_watch.PodObserver`.

    Args:
        api: The cluster.
        specs: The nodes.
        pods_dir: Folder of the pods' logs, in folders named by their uids.
        run_seconds: Time between the start and the end of each pod.
        log_lines: Lines that a pod prints when it starts. If the function raises, the pod fails and its log names the
            exception.
    """

    def __init__(
        self,
        api: ApiClient,
        specs: Sequence[NodeSpec],
        pods_dir: Path,
        *,
        run_seconds: float = 0.0,
        log_lines: LogLines = default_log_lines,
    ) -> None:
        self._api = api
        self._specs = {spec.name: spec for spec in specs}
        self._run_seconds = run_seconds
        self._log_lines = log_lines
        self._folder = pods_dir
        self._logs = Logs()
        self._server = KubeletServer(self._logs, client_authority_pem=api.authority_pem)
        self._watch = PodWatch(api, None, self)
        self._pool = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="no-op")
        self._lock = threading.Lock()
        self._pods: dict[str, _Pod] = {}
        self._ends: queue.PriorityQueue[tuple[float, str]] = queue.PriorityQueue()
        self._stopping = threading.Event()
        self._renewed_at: dict[str, datetime] = {}
        self._threads = [Worker(self._end_in_time, name="no-op-ends")]
        for number in range(_HEARTS):
            names = list(self._specs)[number::_HEARTS]
            self._threads.append(Worker(self._beat, names, name="no-op-heart"))

    def start(self) -> None:
        """Register the nodes and take their pods. Returns when all are Ready.

        Raises:
            RequestRefused: If the API server does not let a node register.
            ApiUnreachable: If it does not answer.
        """
        self._server.start()
        list(self._pool.map(self._register, self._specs.values()))
        for thread in self._threads:
            thread.start()
        self._watch.start()

    def stop(self) -> None:
        """Remove the nodes from the cluster."""
        self._stopping.set()
        self._api.limit_answers(STOP_ANSWER_SECONDS)
        self._watch.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        unregister(self._api, self._specs)
        self._server.stop()

    def pods_listed(self, pods: list[dict[str, Any]]) -> None:
        """Start the pods that are in the list."""
        for pod in pods:
            surviving(self.pod_changed, pod, name="a change of a pod")

    def pod_changed(self, pod: dict[str, Any]) -> None:
        """Start a pod that is new on one of the nodes, and complete the deletion of one that is being deleted."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        if pod["spec"].get("nodeName") not in self._specs:
            return
        with self._lock:
            known = metadata["uid"] in self._pods
            if not known and status.get("phase") == "Pending" and not metadata.get("deletionTimestamp"):
                self._pods[metadata["uid"]] = _Pod(pod, datetime.now(UTC))
                self._submit(self._start_pod, metadata["uid"])
        if metadata.get("deletionTimestamp"):
            self._submit(self._delete, pod)

    def pod_deleted(self, pod: dict[str, Any]) -> None:
        """Remove the pod and its log."""
        with self._lock:
            self._pods.pop(pod["metadata"]["uid"], None)
        folder = self._folder_of(pod)
        self._logs.forget(pod, folder)
        shutil.rmtree(folder, ignore_errors=True)

    def reconnected(self) -> None:
        """Register again: the API server may have restarted with an empty store."""
        for spec in self._specs.values():
            self._register(spec)

    def _register(self, spec: NodeSpec) -> None:
        now = datetime.now(UTC)
        self._renewed_at[spec.name] = now
        self._create("/api/v1/nodes", node_object(spec))
        self._report_ready(spec, now)
        self._create(f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases", lease(spec.name, now))

    def _create(self, path: str, body: dict[str, Any]) -> None:
        try:
            self._api.create(path, body)
        except RequestRefused as error:
            if error.status != 409:  # it was registered before
                raise

    def _start_pod(self, uid: str) -> None:
        pod = self._pods[uid]
        folder, container = self._folder_of(pod.manifest), pod.manifest["spec"]["containers"][0]["name"]
        folder.mkdir(parents=True, exist_ok=True)
        self._logs.remember(pod.manifest, folder)
        log = self._logs.open(folder, container)
        try:
            for line in self._log_lines(pod.manifest):
                log.write_line(line)
        except Exception as error:  # noqa: BLE001 (the caller's function)
            log.write_line(f"the function of the log lines failed: {error!r}")
            pod.exit_code = 1
        self._logs.close(log)
        self._report(pod, Running(pod.started_at))
        self._ends.put((time.monotonic() + self._run_seconds, uid))

    def _end_in_time(self) -> None:
        while not self._stopping.is_set():
            try:
                at, uid = self._ends.get(timeout=1)
            except queue.Empty:
                continue
            left = at - time.monotonic()
            if left > 0:
                self._ends.put((at, uid))
                self._stopping.wait(min(left, 1.0))
            else:
                self._submit(self._end_pod, uid)

    def _end_pod(self, uid: str) -> None:
        with self._lock:
            pod = self._pods.get(uid)
        if pod is not None:
            now = datetime.now(UTC)
            reason = "Error" if pod.exit_code else "Completed"
            end = Terminated(exit_code=pod.exit_code, reason=reason, started_at=pod.started_at, finished_at=now)
            self._report(pod, end)

    def _report(self, pod: _Pod, state: State) -> None:
        metadata, spec = pod.manifest["metadata"], pod.manifest["spec"]
        reported = by_type(pod.manifest.get("status") or {})
        containers = [
            ContainerStatus(name=each["name"], image=each["image"], state=state) for each in spec["containers"]
        ]
        pod_state = PodState(
            uid=metadata["uid"],
            generation=metadata.get("generation") or 1,
            restart_policy=spec.get("restartPolicy") or "Always",
            started_at=pod.started_at,
            containers=containers,
        )
        status = pod_status(pod_state, reported, datetime.now(UTC))
        self._api.patch(f"{_path(pod.manifest)}/status", strategic_patch(metadata["uid"], status, reported))

    def _delete(self, pod: dict[str, Any]) -> None:
        self._api.delete(_path(pod), final_delete_options(pod["metadata"]["uid"]))

    def _beat(self, names: Sequence[str]) -> None:
        """Renew one lease after the other, spread over the time, so that the API does not get a thousand of them at
        once."""
        while names and not self._stopping.is_set():
            began = time.monotonic()
            for place, name in enumerate(names):
                surviving(self._renew, name, name="heartbeats of nodes")
                due = began + _HEARTBEAT_SECONDS * (place + 1) / len(names)
                if self._stopping.wait(max(0.0, due - time.monotonic())):
                    return

    def _renew(self, name: str) -> None:
        now = datetime.now(UTC)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{name}"
        try:
            self._api.patch(path, {"spec": {"renewTime": times.micros(now)}})
            if now - self._renewed_at[name] > _BELIEVED_FOR:
                self._report_ready(self._specs[name], now)
            self._renewed_at[name] = now
        except (RequestRefused, ApiUnreachable) as error:
            _LOG.info("heartbeat of node %s is missed: %s", name, error)

    def _report_ready(self, spec: NodeSpec, now: datetime) -> None:
        status = node_status(spec, self._server.port, str(uuid.uuid4()), now, now)
        self._api.patch(f"/api/v1/nodes/{spec.name}/status", {"status": status})

    def _submit(self, work: Any, *arguments: Any) -> None:
        if not self._stopping.is_set():
            submit(self._pool, self._carry_out, work, *arguments, name="pods without a program")

    def _carry_out(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except (RequestRefused, ApiUnreachable) as error:
            if getattr(error, "status", None) not in (404, 409):  # the pod was deleted, or another pod has its name
                _LOG.warning("the status of a pod could not be reported: %s", error)

    def _folder_of(self, pod: Mapping[str, Any]) -> Path:
        return self._folder / str(pod["metadata"]["uid"])


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
