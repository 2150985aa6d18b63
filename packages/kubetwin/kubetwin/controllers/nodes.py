"""Node lifecycle: taints on nodes that are not ready, nodes without a heartbeat, and pods of deleted nodes."""

from __future__ import annotations

import asyncio

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.taint_eviction import TaintEviction
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.conditions import find_condition, holds, mark_disrupted, set_condition
from kubetwin.model.errors import Object
from kubetwin.model.names import namespaced_name
from kubetwin.resources.pod_defaults import tolerate_lost_nodes
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

LEASE_NAMESPACE = "kube-node-lease"
LEASES = "leases.coordination.k8s.io"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def ready_status(node: Object) -> str:
    """The status of the Ready condition ("" before the kubelet's first report)."""
    return str((find_condition(node.get("status"), "Ready") or {}).get("status", ""))


def wanted_taints(node: Object) -> list[Object]:
    """The node's taints, with those that stand for its readiness and for a cordon put right."""
    own = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)
    taints = [t for t in node["spec"].get("taints") or [] if t["key"] not in own]
    if node["spec"].get("unschedulable"):
        taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    key = {"True": "", "Unknown": UNREACHABLE}.get(ready_status(node), NOT_READY)
    # A node that has never been ready has no pods to evict.
    effects = ("NoSchedule", "NoExecute") if ready_status(node) else ("NoSchedule",)
    return [*taints, *({"key": key, "effect": effect} for effect in effects)] if key else taints


class NodeController:
    """Watches nodes, their leases and the pods that are bound to them."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.nodes, self.pods = cluster.registry.by_key("nodes"), cluster.registry.by_key("pods")
        self.queue: WorkQueue[str] = WorkQueue(self._reconcile)
        self.lost: WorkQueue[tuple[str, str]] = WorkQueue(self._collect)
        self._heard: dict[str, float] = {}
        """Time of each node's last heartbeat, by this process's clock, which stops while a laptop sleeps."""
        cluster.store.listen("nodes", self._node_changed)
        cluster.store.listen(LEASES, self._lease_changed)
        cluster.store.listen("pods", self._pod_changed)

    def _node_changed(self, change: Change) -> None:
        if change.type != "DELETED":
            if _heartbeats(change.previous) != _heartbeats(change.object):
                self._heard[change.name] = asyncio.get_running_loop().time()
            self.queue.add(change.name)
            return
        self._heard.pop(change.name, None)
        for pod in self.cluster.store.objects("pods"):
            if pod["spec"].get("nodeName") == change.name:
                self.lost.add(namespaced_name(pod))

    def _lease_changed(self, change: Change) -> None:
        if change.namespace == LEASE_NAMESPACE and change.type != "DELETED":
            self._heard[change.name] = asyncio.get_running_loop().time()

    def _pod_changed(self, change: Change) -> None:
        leaving = change.type != "DELETED" and change.object["metadata"].get("deletionTimestamp")
        if leaving and not self._node_exists(change.object):
            self.lost.add((change.namespace, change.name))

    def _node_exists(self, pod: Object) -> bool:
        return self.cluster.store.get("nodes", "", pod["spec"].get("nodeName", "")) is not None

    def _collect(self, key: tuple[str, str]) -> None:
        """End a pod whose node was deleted: no kubelet will report on it any more."""
        pod = self.cluster.store.get("pods", *key)
        if pod is None or self._node_exists(pod) or not pod["spec"].get("nodeName"):
            return
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            self.cluster.modify(self.pods, *key, _fail)
        self.cluster.delete(self.pods, *key, DeleteOptions(grace_seconds=0, uid=pod["metadata"]["uid"]))

    def _mark_pods_not_ready(self, name: str) -> None:
        for pod in self.cluster.store.objects("pods"):
            if pod["spec"].get("nodeName") == name and holds(pod["status"], "Ready"):
                self.cluster.modify(self.pods, *namespaced_name(pod), _set_unready)

    def _reconcile(self, name: str) -> None:
        node = self.cluster.store.get("nodes", "", name)
        if node is None:
            return
        if ready_status(node) not in ("", "True"):
            self._mark_pods_not_ready(name)
        grace = self.cluster.node_times.grace_seconds
        silent = asyncio.get_running_loop().time() - self._heard.get(name, 0.0)
        if silent >= grace and ready_status(node) not in ("", "Unknown"):
            self.cluster.modify(self.nodes, "", name, _unknown)
            self.recorder.record(
                node, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady", "node-controller"
            )
        self.cluster.modify(self.nodes, "", name, _set_taints)
        if silent < grace:
            self.queue.add_after(name, grace - silent)


def _heartbeats(node: Object | None) -> list[str]:
    conditions = ((node or {}).get("status") or {}).get("conditions") or []
    return [str(c["status"]) + str(c.get("lastHeartbeatTime")) for c in conditions if c["status"] != "Unknown"]


def _fail(pod: Object) -> None:
    pod["status"] |= {"phase": "Failed"}
    mark_disrupted(pod, "DeletionByPodGC", "PodGC: node no longer exists")


def _set_unready(pod: Object) -> None:
    set_condition(pod["status"], {"type": "Ready", "status": "False"})


def _unknown(node: Object) -> None:
    message = "Kubelet stopped posting node status."
    condition: Object = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": message}
    old = find_condition(node["status"], "Ready") or {}
    set_condition(node["status"], condition)
    condition.pop("lastProbeTime")
    condition["lastHeartbeatTime"] = old.get("lastHeartbeatTime")


def _set_taints(node: Object) -> None:
    taints = wanted_taints(node)
    if taints:
        node["spec"]["taints"] = taints
    else:
        node["spec"].pop("taints", None)


def _tolerate_lost_nodes(cluster: Cluster, resource: Resource, obj: Object) -> None:
    if resource.key == "pods":
        tolerate_lost_nodes(obj["spec"], cluster.node_times.toleration_seconds)


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    cluster.admission.append(lambda resource, obj: _tolerate_lost_nodes(cluster, resource, obj))
    NodeController(cluster, recorder)
    TaintEviction(cluster, recorder)
