"""The scheduler: binds pods to nodes, or reports the reason on the pod."""

from __future__ import annotations

import heapq
from collections import defaultdict

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.preemption import preempt, priority
from kubetwin.controllers.scheduling import Placement, hopeless, place
from kubetwin.controllers.usage import NodeUsage, occupies
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.conditions import mark_disrupted, set_condition
from kubetwin.model.errors import Object
from kubetwin.model.names import namespaced_name
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

NAME = "default-scheduler"

PodKey = tuple[str, str]


class Scheduler:
    """Places pods when they appear, and tries the parked ones again when room may have appeared."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.pods = cluster.registry.by_key("pods")
        self.usage = NodeUsage(cluster.store).by_node
        self.waiting: set[PodKey] = set()
        self.line: list[tuple[tuple[int, str, int], PodKey]] = []
        """A heap of who waits, the most urgent first; entries that no longer wait are skipped."""
        self.parked: set[PodKey] = set()
        self.queue: WorkQueue[str] = WorkQueue(self._schedule_next)
        cluster.store.listen("pods", self._pod_changed)
        for key in ("nodes", "persistentvolumeclaims"):
            cluster.store.listen(key, self._room_changed)

    def _pod_changed(self, change: Change) -> None:
        pod = None if change.type == "DELETED" else change.object
        key = (change.namespace, change.name)
        self.waiting.discard(key)
        if pod is None or not _is_ours(pod):
            self.parked.discard(key)
        elif key not in self.parked or change.type == "ADDED" or _spec_changed(change):
            self.parked.discard(key)
            self._enqueue(key, pod)
        if occupies(change.previous) and not occupies(pod):
            self._retry()

    def _room_changed(self, change: Change) -> None:
        if change.previous is None or change.type == "DELETED" or _placing(change.previous) != _placing(change.object):
            self._retry()

    def _retry(self) -> None:
        for key in self.parked:
            pod = self.cluster.store.get("pods", *key)
            if pod is not None:
                self._enqueue(key, pod)
        self.parked.clear()

    def _schedule_next(self, _key: str) -> None:
        """Place the most urgent pod that still waits."""
        if not self.line:
            return
        _, key = heapq.heappop(self.line)
        self.queue.add("")
        pod = self.cluster.store.get("pods", *key)
        if pod is None or key not in self.waiting:
            return
        self.waiting.discard(key)
        placement = self._place(pod)
        if placement.node:
            assign(self.cluster, self.recorder, pod, placement.node, NAME)
        else:
            self.parked.add(key)
            self._tell(pod, placement.message)
            self._preempt(pod)

    def _enqueue(self, key: PodKey, pod: Object) -> None:
        self.waiting.add(key)
        heapq.heappush(self.line, (_urgency(pod), key))
        self.queue.add("")

    def _place(self, pod: Object) -> Placement:
        nodes = self.cluster.store.objects("nodes")
        fault = self._volume_fault(pod)
        if fault:
            return hopeless(fault, len(nodes))
        return place(pod, nodes, self.usage)

    def _volume_fault(self, pod: Object) -> str:
        for volume in pod["spec"].get("volumes") or []:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if not name:
                continue
            claim = self.cluster.store.get("persistentvolumeclaims", pod["metadata"]["namespace"], name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim["status"].get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _preempt(self, pod: Object) -> None:
        """Delete pods of lower priority if that makes room; the pod is placed when they have ended."""
        if not priority(pod) or self._volume_fault(pod):
            return
        by_node: dict[str, list[Object]] = defaultdict(list)
        for each in self.cluster.store.objects("pods"):
            if occupies(each):
                by_node[each["spec"]["nodeName"]].append(each)
        found = preempt(pod, self.cluster.store.objects("nodes"), by_node)
        if found is None:
            return
        nominated = {"nominatedNodeName": found.node}
        self.cluster.modify(self.pods, *namespaced_name(pod), lambda stored: stored["status"].update(nominated))
        for victim in found.victims:
            self.cluster.modify(self.pods, *namespaced_name(victim), _give_way)
            message = f"Preempted by pod {pod['metadata']['uid']} on node {found.node}"
            self.recorder.record(victim, "Normal", "Preempted", message, NAME)
            self.cluster.delete(self.pods, *namespaced_name(victim), DeleteOptions(uid=victim["metadata"]["uid"]))

    def _tell(self, pod: Object, message: str) -> None:
        mark_unscheduled(self.cluster, pod, message)
        self.recorder.record(pod, "Warning", "FailedScheduling", message, NAME)


def bind(cluster: Cluster, namespace: str, name: str, node: str) -> Object | None:
    """Bind a pod to its node."""

    def write(pod: Object) -> None:
        pod["spec"]["nodeName"] = node
        pod["status"].pop("nominatedNodeName", None)
        set_condition(pod["status"], {"type": "PodScheduled", "status": "True"})

    return cluster.modify(cluster.registry.by_key("pods"), namespace, name, write)


def assign(cluster: Cluster, recorder: EventRecorder, pod: Object, node: str, scheduler: str) -> None:
    """Bind a pod, and record the scheduler's event."""
    namespace, name = namespaced_name(pod)
    if bind(cluster, namespace, name, node) is not None:
        recorder.record(pod, "Normal", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}", scheduler)


def _give_way(pod: Object) -> None:
    message = f"{NAME}: preempting to accommodate a higher priority pod"
    mark_disrupted(pod, "PreemptionByScheduler", message)


def mark_unscheduled(cluster: Cluster, pod: Object, message: str, reason: str = "Unschedulable") -> None:
    """Set the reason for a missing node in the status of a pod."""

    def write(stored: Object) -> None:
        new = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "observedGeneration": stored["metadata"].get("generation", 1),
        }
        set_condition(stored["status"], new)

    cluster.modify(cluster.registry.by_key("pods"), *namespaced_name(pod), write)


def _is_ours(pod: Object) -> bool:
    spec = pod["spec"]
    waits = not spec.get("nodeName") and not spec.get("schedulingGates")
    return waits and spec.get("schedulerName") == NAME and not pod["metadata"].get("deletionTimestamp")


def _spec_changed(change: Change) -> bool:
    return change.previous is not None and change.previous["spec"] != change.object["spec"]


def _placing(obj: Object) -> Object:
    """The part of a node or claim that decides whether pods fit; heartbeats do not change it."""
    status = obj.get("status") or {}
    return {
        "labels": obj["metadata"].get("labels"),
        "spec": obj.get("spec"),
        "allocatable": status.get("allocatable") or status.get("capacity"),
        "phase": status.get("phase"),
    }


def _urgency(pod: Object) -> tuple[int, str, int]:
    metadata = pod["metadata"]
    return (-pod["spec"].get("priority", 0), metadata["creationTimestamp"], int(metadata["resourceVersion"]))


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    Scheduler(cluster, recorder)
