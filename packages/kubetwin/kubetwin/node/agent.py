"""The process node: registers itself, keeps its heartbeat, and gives every pod bound to it a worker."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from kubetwin.background import Worker, report, submit, surviving
from kubetwin.client import STOP_ANSWER_SECONDS, ApiClient, ApiUnreachable, RequestRefused
from kubetwin.node.cluster_reader import ClusterReader
from kubetwin.node.container_slot import NodeTools
from kubetwin.node.events import EventRecorder
from kubetwin.node.kubelet_server import KubeletServer
from kubetwin.node.launching import RuntimeSettings, pod_folder, volume_folder
from kubetwin.node.log_catalogue import Logs
from kubetwin.node.memory import MemoryWatch
from kubetwin.node.pod_watch import PodWatch
from kubetwin.node.pod_worker import PodWorker, final_delete_options
from kubetwin.node.registration import LEASE_NAMESPACE, NodeSpec, lease, node_object, node_status, unregister
from kubetwin.node.running_containers import RunningContainers
from kubetwin.node.volumes import remove_all_but_logs

_LOG = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""The kubelet renews its Lease every 10 s."""

_STATUS_SECONDS = 300.0
"""The kubelet reports an unchanged status every 5 minutes."""

_SILENT_HEARTBEATS = 2
"""After a longer silence the node may have been marked as lost: it reports again that it is ready, as the kubelet does
where its status differs."""

_STOP_GRACE_SECONDS = 2.0
"""Time for pods to end when the node stops."""


class ProcessNode:
    """A node of a cluster that runs pods as processes of this machine.

    Args:
        api: The cluster.
        spec: Name and shape of the node.
        settings: What its containers share; the folder for pods is made.
        heartbeat_seconds: Time between two renewals of the node's Lease.
    """

    def __init__(
        self, api: ApiClient, spec: NodeSpec, settings: RuntimeSettings, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self.spec = spec
        self._heartbeat_seconds = heartbeat_seconds
        self._api = api
        settings.pods_dir.mkdir(parents=True, exist_ok=True)
        self._events = EventRecorder(api, spec.name)
        self._memory = MemoryWatch()
        logs, running = Logs(), RunningContainers()
        self._tools = NodeTools(api, ClusterReader(api), self._events, self._memory, logs, running, settings)
        self._server = KubeletServer(logs, running, client_authority_pem=api.authority_pem)
        self._watch = PodWatch(api, spec.name, self)
        self._cleaner = ThreadPoolExecutor(max_workers=4, thread_name_prefix="node-cleaner")
        self._lock = threading.Lock()
        self._workers: dict[str, PodWorker] = {}
        self._finished: set[str] = set()
        self._stopping = threading.Event()
        self._boot_id = str(uuid.uuid4())
        self._ready_since = datetime.now(UTC)
        self._heartbeat = Worker(self._beat, name="node-heartbeat")

    def start(self) -> None:
        """Register the node and run its pods. Returns when the node is Ready.

        Raises:
            RequestRefused: If the API server does not let the node register.
            ApiUnreachable: If it does not answer.
        """
        self._server.start()
        try:
            self.register()
        except (RequestRefused, ApiUnreachable):
            self._server.stop()
            raise
        self._events.start()
        self._memory.start()
        self._heartbeat.start()
        self._watch.start()

    def stop(self) -> None:
        """Drain: take no more pods, end all, report how they ended, and remove the node from the cluster."""
        self._stopping.set()
        self._api.limit_answers(STOP_ANSWER_SECONDS)
        with contextlib.suppress(RequestRefused, ApiUnreachable):
            self._api.patch(f"/api/v1/nodes/{self.spec.name}", {"spec": {"unschedulable": True}})
        self._watch.stop()
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.shut_down(_STOP_GRACE_SECONDS)
        limit = time.monotonic() + _STOP_GRACE_SECONDS + 3
        for worker in workers:
            worker.join(max(0.0, limit - time.monotonic()))
        self._memory.stop()
        self._events.stop()
        self._cleaner.shutdown(wait=True)
        unregister(self._api, [self.spec.name])
        self._server.stop()

    def register(self) -> None:
        """Make the Node, or bring the one of that name up to date, and report it Ready."""
        node = node_object(self.spec)
        try:
            self._api.create("/api/v1/nodes", node)
        except RequestRefused as error:
            if error.status != 409:
                raise
            changes = {"metadata": {"labels": node["metadata"]["labels"]}, "spec": node.get("spec", {})}
            self._api.patch(f"/api/v1/nodes/{self.spec.name}", changes)
        self._renew_lease()
        self._report_status()

    def pods_listed(self, pods: list[dict[str, Any]]) -> None:
        """Take the complete list of the node's pods: all others were deleted."""
        present = {pod["metadata"]["uid"] for pod in pods}
        with self._lock:
            gone = [worker for uid, worker in self._workers.items() if uid not in present]
            self._finished &= present
        for worker in gone:
            worker.remove()
        for pod in pods:
            surviving(self.pod_changed, pod, name="a change of a pod")

    def pod_changed(self, pod: dict[str, Any]) -> None:
        """Start a worker for a new pod; pass the change of a known pod to its worker."""
        uid = pod["metadata"]["uid"]
        self._tools.logs.remember(pod, pod_folder(self._tools.settings, pod))
        with self._lock:
            worker = self._workers.get(uid)
            if worker is not None:
                worker.update(pod)
                return
            over = uid in self._finished or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if not over and not self._stopping.is_set():
                worker = self._workers[uid] = PodWorker(pod, self._tools, self._worker_finished)
                worker.start()
                return
        if over and pod["metadata"].get("deletionTimestamp"):
            submit(self._cleaner, self._remove_pod, pod, name="removal of pods")

    def pod_deleted(self, pod: dict[str, Any]) -> None:
        """Kill the remaining processes of a pod whose object was deleted."""
        uid = pod["metadata"]["uid"]
        with self._lock:
            worker = self._workers.get(uid)
            self._finished.discard(uid)
        if worker is not None:
            worker.remove()
        else:
            self._clean_up(pod)

    def reconnected(self) -> None:
        """Register again: the API server may have restarted with an empty store."""
        self.register()

    def _worker_finished(self, worker: PodWorker) -> None:
        with self._lock:
            self._workers.pop(worker.uid, None)
            pod = worker.pod
            if not worker.removed:
                self._finished.add(worker.uid)
        if worker.removed:
            self._clean_up(pod)
            return
        # A deletion that reached the worker too late is completed here.
        if pod["metadata"].get("deletionTimestamp") and not self._stopping.is_set():
            submit(self._cleaner, self._remove_pod, pod, name="removal of pods")

    def _remove_pod(self, pod: dict[str, Any]) -> None:
        """Delete the object of a pod that has ended, and its folder."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        while not self._stopping.is_set():
            with contextlib.suppress(ApiUnreachable):
                try:
                    self._api.delete(path, final_delete_options(metadata["uid"]))
                except RequestRefused as error:
                    _LOG.warning("pod %s cannot be deleted: %s", metadata["name"], error)
                break
            self._stopping.wait(1)
        self._clean_up(pod)

    def _clean_up(self, pod: dict[str, Any]) -> None:
        folder = pod_folder(self._tools.settings, pod)
        self._tools.logs.forget(pod, folder)
        remove_all_but_logs(folder)
        shutil.rmtree(volume_folder(self._tools.settings, pod), ignore_errors=True)

    def _beat(self) -> None:
        heard = reported = time.monotonic()
        while not self._stopping.wait(self._heartbeat_seconds):
            try:
                self._renew_lease()
                now = time.monotonic()
                if now >= reported + _STATUS_SECONDS or now >= heard + _SILENT_HEARTBEATS * self._heartbeat_seconds:
                    self._report_status()
                    reported = now
                heard = now
            except (RequestRefused, ApiUnreachable) as error:
                _LOG.info("heartbeat of node %s is missed: %s", self.spec.name, error)
            except Exception as error:  # noqa: BLE001 (reported; a node without a heartbeat would count as lost)
                report(f"heartbeat of node {self.spec.name}", error)

    def _renew_lease(self) -> None:
        """Renew the lease, unless the server lacks leases."""
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
        body = lease(self.spec.name, datetime.now(UTC))
        try:
            self._api.patch(f"{leases}/{self.spec.name}", {"spec": body["spec"]})
        except RequestRefused as error:
            if error.status != 404:
                raise
            with contextlib.suppress(RequestRefused):
                self._api.create(leases, body)

    def _report_status(self) -> None:
        status = node_status(self.spec, self._server.port, self._boot_id, self._ready_since, datetime.now(UTC))
        self._api.patch(f"/api/v1/nodes/{self.spec.name}/status", {"status": status})
