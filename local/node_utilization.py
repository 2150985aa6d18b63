"""Publishes the utilization of the twin's nodes, as Container Insights does on EKS.

A node of the twin lacks devices, so only the metric of processors is published: the share of this machine's processors
that its pods use. Values come more often than the agent's one a minute, so that short runs have some.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psutil
from kubetwin.client import ApiUnreachable, RequestRefused

from local.loop import Loop
from trainflow.container_insights import CLUSTER, CPU_METRIC, INSTANCE, NAMESPACE, NODE

PUBLISH_SECONDS = 5.0
"""Time between two values of a node."""


class NodeUtilization:
    """Publishes how busy nodes are, from `start` to `stop`."""

    def __init__(
        self,
        *,
        cluster: str,
        cloudwatch: Callable[[], Any],
        roots: Callable[[], Iterable[int]],
        nodes: Callable[[], Mapping[str, str]],
    ) -> None:
        """Prepare, without starting.

        Args:
            cluster: Name of the cluster.
            cloudwatch: Makes boto3's client.
            roots: Processes of the nodes, the ancestors of the pods' processes.
            nodes: The node of each running pod, by the pod's host name.
        """
        self._cluster, self._cloudwatch, self._roots, self._nodes = cluster, cloudwatch, roots, nodes
        self._client: Any = None
        self._known: dict[psutil.Process, tuple[str, float]] = {}
        self._measured_at = time.monotonic()
        self._loop = Loop(self.publish, name="node-utilization", seconds=PUBLISH_SECONDS)

    def start(self) -> None:
        """Begin to publish."""
        self._loop.start()

    def stop(self) -> None:
        """End."""
        self._loop.stop()

    def publish(self) -> None:
        """Publish the time since the last call, of the nodes that have pods; a cluster that ends publishes nothing."""
        seconds = self._seconds_by_host()
        elapsed, self._measured_at = time.monotonic() - self._measured_at, time.monotonic()
        try:
            nodes = self._nodes() if seconds else {}
        except (RequestRefused, ApiUnreachable):
            return
        used: dict[str, float] = dict.fromkeys(nodes.values(), 0.0)
        for host, spent in seconds.items():
            if host in nodes:
                used[nodes[host]] += spent
        if used:
            self._client = self._client or self._cloudwatch()
            whole = elapsed * (psutil.cpu_count() or 1)
            self._client.put_metric_data(
                Namespace=NAMESPACE,
                MetricData=[self._datum(node, min(100.0, 100 * spent / whole)) for node, spent in used.items()],
            )

    def _datum(self, node: str, percent: float) -> dict[str, Any]:
        instance = f"i-{hashlib.sha256(node.encode()).hexdigest()[:17]}"
        dimensions = {CLUSTER: self._cluster, INSTANCE: instance, NODE: node}
        return {
            "MetricName": CPU_METRIC,
            "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            "Value": percent,
            "Unit": "Percent",
        }

    def _seconds_by_host(self) -> dict[str, float]:
        """Seconds of processors that pods have used since the last call, less the last part of ended processes."""
        used: dict[str, float] = defaultdict(float)
        known: dict[psutil.Process, tuple[str, float]] = {}
        for root in self._roots():
            for process in _below(root):
                try:
                    host, before = self._known.get(process) or (process.environ().get("HOSTNAME", ""), 0.0)
                    times = process.cpu_times()
                except psutil.Error:
                    continue
                known[process] = host, times.user + times.system
                used[host] += max(0.0, times.user + times.system - before)
        self._known = known
        return used


def _below(root: int) -> list[psutil.Process]:
    try:
        return psutil.Process(root).children(recursive=True)
    except psutil.Error:
        return []
