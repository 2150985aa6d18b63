"""After how long the twin takes a silent node for lost: Kubernetes' times in the twin's time, down to a floor."""

from __future__ import annotations

import math
from dataclasses import dataclass

HEARTBEATS = 5
"""Heartbeats that a node misses before it is lost: Kubernetes has one in 10 s and waits for 50 s."""

GRACE_SECONDS, HEARTBEAT_SECONDS, TOLERATION_SECONDS = 50.0, 10.0, 300
"""Kubernetes' times: node-monitor-grace-period of kube-controller-manager, a quarter of the kubelet's
nodeLeaseDurationSeconds, and default-unreachable-toleration-seconds of kube-apiserver."""

SHORTEST_GRACE_SECONDS = 20.0
"""A machine whose processors train is slow in real time, whatever the time scale: nodes are processes that wait for a
processor as all others do. With twelve processes that computed on two processors, heartbeats of 4 s came at most 4.3 s
apart (11/2026), so five of them leave room."""


@dataclass(frozen=True, kw_only=True)
class NodeTimes:
    """Times of one twin, in seconds."""

    grace_seconds: float = GRACE_SECONDS
    """Seconds of silence until a node is lost."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    toleration_seconds: int = TOLERATION_SECONDS
    """Stay of a pod on a lost node, where its own tolerations do not say it."""


def node_times(time_scale: float) -> NodeTimes:
    """Kubernetes' times as the twin waits.

    Args:
        time_scale: Waits take `1 / time_scale` of their time.
    """
    grace = max(GRACE_SECONDS / time_scale, SHORTEST_GRACE_SECONDS)
    heartbeat = min(grace / HEARTBEATS, HEARTBEAT_SECONDS)
    # A node that was only slow has time for two heartbeats, the first of which may come too late.
    toleration = math.ceil(max(TOLERATION_SECONDS / time_scale, 2 * heartbeat))
    return NodeTimes(grace_seconds=grace, heartbeat_seconds=heartbeat, toleration_seconds=toleration)
