"""Makes nodes for pending pods, and ends those that hold none, in the place of a cluster's autoscaler.

It reports by events about pods, in the words of the Cluster Autoscaler. Node groups, prices and zones are left
out: it decides the number of nodes of each type (docs/decisions/0104-nodes-by-the-cluster.md).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kubetwin.client import ApiClient, RequestRefused
from kubetwin.node.events import pod_event

from local.loop import Loop
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL, INSTANCE_TYPES, nodegroup_name

NAME = "cluster-autoscaler"
POLL_SECONDS = 0.5

PENDING_SECONDS = 1.0
"""Time that a pod is unschedulable before a node is made for it. The Cluster Autoscaler scans every ten seconds."""

EMPTY_SECONDS = 5.0
"""Time that the nodes of a type hold no pod before they end: `consolidateAfter` of a NodePool. Nodes of a type end
together, as their processes do."""

ENDED = ("Succeeded", "Failed")


class Autoscaler:
    """Follows the pods of a cluster that select an instance type of runs."""

    def __init__(self, api: ApiClient, *, limits: Mapping[str, int], maximum: int) -> None:
        """Prepare, without starting.

        Args:
            api: Client of the cluster's API.
            limits: Most nodes of single instance types.
            maximum: Most nodes of the others.
        """
        self._api, self._limits, self._maximum = api, limits, maximum
        self._sizes: dict[str, int] = {}
        self._pending_since: dict[str, float] = {}
        self._empty_since: dict[str, float] = {}
        self._reported: set[tuple[str, str]] = set()
        self._loop = Loop(self._poll, name="autoscaler", seconds=POLL_SECONDS)

    def start(self) -> None:
        """Follow the pods from now on."""
        self._loop.start()

    def stop(self) -> None:
        """Stop; nodes stay as they are."""
        self._loop.stop()

    def sizes(self) -> dict[str, tuple[str, int]]:
        """Instance type and number of nodes, by the name of the group that the twin starts them as."""
        return {nodegroup_name(name): (name, size) for name, size in self._sizes.items()}

    def num_nodes(self) -> int:
        """Number of nodes that there are, or that are starting."""
        return sum(self._sizes.values())

    def _poll(self) -> None:
        now, by_type = time.monotonic(), defaultdict[str, list[Any]](list)
        for pod in self._api.get("/api/v1/pods")["items"]:
            name = (pod["spec"].get("nodeSelector") or {}).get(INSTANCE_TYPE_LABEL)
            if isinstance(name, str) and name in INSTANCE_TYPES and pod["status"].get("phase") not in ENDED:
                by_type[name].append(pod)
        for name in {*by_type, *self._sizes}:
            self._scale(name, by_type[name], now)

    def _scale(self, name: str, pods: list[Any], now: float) -> None:
        size = self._sizes.get(name, 0)
        if not pods:
            since = self._empty_since.setdefault(name, now)
            if now - since >= EMPTY_SECONDS:
                self._sizes[name] = 0
            return
        self._empty_since.pop(name, None)
        occupied = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName") and _stays(pod)}
        pending = [pod for pod in pods if not pod["spec"].get("nodeName") and _stays(pod) and _unschedulable(pod)]
        waiting = [pod for pod in pending if now - self._since(pod, now) >= PENDING_SECONDS]
        limit = self._limits.get(name, self._maximum)
        wanted = min(max(size, len(occupied) + len(waiting)), max(limit, size))
        room = wanted - len(occupied)
        for index, pod in enumerate(waiting):
            if index < room:
                group = f"{nodegroup_name(name)} {size}->{wanted} (max: {limit})"
                self._report(pod, "TriggeredScaleUp", f"pod triggered scale-up: [{{{group}}}]")
            else:
                self._report(pod, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached")
        self._sizes[name] = wanted

    def _since(self, pod: Any, now: float) -> float:
        return self._pending_since.setdefault(pod["metadata"]["uid"], now)

    def _report(self, pod: Any, reason: str, message: str) -> None:
        """Make an event about a pod, once for each reason."""
        metadata = pod["metadata"]
        if (metadata["uid"], reason) in self._reported:
            return
        event = {
            **pod_event(pod, "", "Normal", reason, message, container="", now=datetime.now(UTC)),
            "source": {"component": NAME},
            "reportingComponent": NAME,
            "reportingInstance": "",
        }
        try:
            self._api.create(f"/api/v1/namespaces/{metadata['namespace']}/events", event)
        except RequestRefused:
            return  # the namespace ends; the next poll sees it
        self._reported.add((metadata["uid"], reason))


def _stays(pod: Any) -> bool:
    return not pod["metadata"].get("deletionTimestamp")


def _unschedulable(pod: Any) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any((each["type"], each["status"]) == ("PodScheduled", "False") for each in conditions)
