"""Taint eviction: deletes pods from nodes whose taint NoExecute they do not tolerate, or no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.scheduling import tolerates
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.conditions import mark_disrupted
from kubetwin.model.errors import Object
from kubetwin.model.names import namespaced_name
from kubetwin.state.cluster import Cluster, NodeTimes
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

DEFAULT_TOLERATIONS: tuple[Object, ...] = tuple(
    {
        "key": f"node.kubernetes.io/{name}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": NodeTimes.toleration_seconds,
    }
    for name in ("not-ready", "unreachable")
)


def seconds_tolerated(pod: Object, taints: Sequence[Object]) -> float | None:
    """Seconds that a pod may stay on a node with these taints; None for ever.

    The least of its tolerations counts, as in `getMinTolerationTime` of kube-controller-manager.
    """
    own = list(pod["spec"].get("tolerations") or [])
    keys = {each.get("key") for each in own if each.get("effect") in (None, "", "NoExecute")}
    tolerations = [*own, *(each for each in DEFAULT_TOLERATIONS if each["key"] not in keys)]
    seconds: list[float] = []
    for taint in taints:
        fitting = [each for each in tolerations if tolerates([each], taint)]
        if not fitting:
            return 0
        seconds += [max(each["tolerationSeconds"], 0) for each in fitting if "tolerationSeconds" in each]
    return min(seconds, default=None)


class TaintEviction:
    """Watches the taints of nodes and the pods that are bound to them."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.pods = cluster.registry.by_key("pods")
        self.queue: WorkQueue[tuple[str, str]] = WorkQueue(self._evict)
        self._since: dict[tuple[str, str], float] = {}
        """Since when each pod has been on a node with a taint that ends its stay, by this process's clock."""
        cluster.store.listen("nodes", self._node_changed)
        cluster.store.listen("pods", self._pod_changed)

    def _node_changed(self, change: Change) -> None:
        if change.type == "DELETED" or _taints(change.object) == _taints(change.previous or {}):
            return
        for pod in self.cluster.store.objects("pods"):
            if pod["spec"].get("nodeName") == change.name:
                self.queue.add(namespaced_name(pod))

    def _pod_changed(self, change: Change) -> None:
        if change.type == "DELETED":
            self._since.pop((change.namespace, change.name), None)
            return
        before = ((change.previous or {}).get("spec") or {}).get("nodeName")
        if change.object["spec"].get("nodeName") != before:
            self.queue.add((change.namespace, change.name))

    def _evict(self, key: tuple[str, str]) -> None:
        pod = self.cluster.store.get("pods", *key)
        node = pod and self.cluster.store.get("nodes", "", pod["spec"].get("nodeName", ""))
        if not pod or not node or pod["metadata"].get("deletionTimestamp"):
            return
        taints = _taints(node)
        seconds = seconds_tolerated(pod, taints) if taints else None
        if seconds is None:
            self._since.pop(key, None)
            return
        now = asyncio.get_running_loop().time()
        left = self._since.setdefault(key, now) + seconds - now
        if left > 0:
            self.queue.add_after(key, left)
            return
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            self.cluster.modify(self.pods, *key, _disrupt)
        message = f"Marking for deletion Pod {key[0]}/{key[1]}"
        self.recorder.record(pod, "Normal", "TaintManagerEviction", message, "taint-eviction-controller")
        self.cluster.delete(self.pods, *key, DeleteOptions(uid=pod["metadata"]["uid"]))


def _taints(node: Object) -> list[Object]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or [] if taint["effect"] == "NoExecute"]


def _disrupt(pod: Object) -> None:
    mark_disrupted(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
