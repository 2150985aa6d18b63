"""Place of a training: the nodes of its last attempt, and its time on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from trainflow.observed.pod import Pod
from trainflow.workflow.run import Stage

MAX_NODES = 64
"""Most nodes whose utilization is asked for: each value that is read costs (0.01 USD for 1,000)."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Nodes and time of a training's last attempt."""

    nodes: tuple[str, ...]
    """Names of the nodes, sorted; of more than `MAX_NODES`, the first ones."""
    started_at: datetime
    """Start of the first of its programs."""
    ended_at: datetime
    """Time when the last of them ended, or was seen running."""


def placement_of(pods: Iterable[Pod], *, now: datetime) -> Placement | None:
    """The placement of a run's training; None if no program of its newest job has begun.

    Args:
        pods: Pods of the run.
        now: The end of programs that have not ended.
    """
    trained = [pod for pod in pods if pod.stage == Stage.TRAINING]
    newest = max((pod.attempt for pod in trained), default=0)
    times = [
        (pod.node, pod.started_at, pod.finished_at or now)
        for pod in trained
        if pod.attempt == newest and pod.node and pod.started_at
    ]
    if not times:
        return None
    nodes, starts, ends = zip(*times, strict=True)
    return Placement(nodes=tuple(sorted(set(nodes))[:MAX_NODES]), started_at=min(starts), ended_at=max(ends))
