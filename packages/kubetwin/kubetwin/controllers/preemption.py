"""Preemption: pods of lower priority that make room for one that fits no node.

Follows kubernetes/pkg/scheduler/framework/preemption, without its regard for disruption budgets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kubetwin.controllers.scheduling import Usage, place
from kubetwin.model.errors import Object


@dataclass(frozen=True)
class Preemption:
    """The node whose pods give way, and these pods."""

    node: str
    victims: tuple[Object, ...]


def preempt(pod: Object, nodes: Sequence[Object], pods: Mapping[str, Sequence[Object]]) -> Preemption | None:
    """The least loss that makes room for a pod; None if none does or the pod may not preempt.

    Args:
        pod: A pod that fits no node.
        nodes: All nodes.
        pods: Pods that hold room on each node, by its name.
    """
    if pod["spec"].get("preemptionPolicy") == "Never" or _waits_for_victims(pod, pods):
        return None
    found = (_on_node(pod, node, pods.get(node["metadata"]["name"], ())) for node in nodes)
    return min((each for each in found if each is not None), key=_loss, default=None)


def _on_node(pod: Object, node: Object, present: Sequence[Object]) -> Preemption | None:
    lower = [each for each in present if priority(each) < priority(pod)]
    kept = [each for each in present if priority(each) >= priority(pod)]

    def fits() -> bool:
        return bool(place(pod, [node], {node["metadata"]["name"]: _usage(kept)}).node)

    if not lower or not fits():
        return None
    victims = _without_reprieved(lower, kept, fits)
    return Preemption(node["metadata"]["name"], tuple(victims)) if victims else None


def _without_reprieved(lower: list[Object], kept: list[Object], fits: Callable[[], bool]) -> list[Object]:
    """The pods that have to go: those of the highest priority, and of these the oldest, stay first."""
    victims = []
    for each in sorted(lower, key=lambda p: (-priority(p), p["metadata"].get("creationTimestamp", ""))):
        kept.append(each)
        if not fits():
            victims.append(kept.pop())
    return victims


def _loss(preemption: Preemption) -> tuple[int, int, int, str]:
    priorities = [priority(victim) for victim in preemption.victims]
    return max(priorities), sum(priorities), len(priorities), preemption.node


def _waits_for_victims(pod: Object, pods: Mapping[str, Sequence[Object]]) -> bool:
    """Whether pods that were preempted for it are still ending."""
    nominated = (pod.get("status") or {}).get("nominatedNodeName", "")
    return any(
        each["metadata"].get("deletionTimestamp") and priority(each) < priority(pod) for each in pods.get(nominated, ())
    )


def _usage(pods: Sequence[Object]) -> Usage:
    return functools.reduce(Usage.with_pod, pods, Usage())


def priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)
