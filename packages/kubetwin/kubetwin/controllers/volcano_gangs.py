"""Volcano's scheduling as functions of the objects: admission of gangs, and nodes for a whole gang or for none of it.

After volcano-sh/volcano 1.15, pkg/scheduler with its default configuration: the actions enqueue and allocate, the
plugins gang, overcommit and proportion. Its words are those of the sources; no recording shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from kubetwin.controllers.scheduling import Amounts, Usage, allocatable, place
from kubetwin.model.errors import Object
from kubetwin.model.quantity import add_quantities, parse_quantity

OVERCOMMIT = Fraction(12, 10)
"""The overcommit plugin admits gangs until their requests exceed 1.2 times the cluster."""

_QUOTA_NAMES = ("pods", "count/pods")
_QUOTA_PREFIXES = ("requests.", "limits.")


@dataclass(frozen=True)
class GangPlacement:
    """Nodes for the pods of a gang, or the reasons why none of them is placed."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Node by pod; empty when the gang has to wait."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Reason why a pod does not fit, by pod."""
    message: str = ""
    """Reason why the gang waits."""


def min_resources(group: Object) -> Amounts:
    """Resources that the smallest gang needs on nodes, without those that only quotas count."""
    wanted = group["spec"].get("minResources") or {}
    return {
        name: parse_quantity(amount)
        for name, amount in wanted.items()
        if name not in _QUOTA_NAMES and not name.startswith(_QUOTA_PREFIXES)
    }


def room(nodes: Sequence[Object], usage: Mapping[str, Usage]) -> Amounts:
    """Resources that gangs may still reserve."""
    usable = [node for node in nodes if not node["spec"].get("unschedulable")]
    total = add_quantities(*(allocatable(node) for node in usable))
    used = add_quantities(*(usage[n].amounts for node in usable if (n := node["metadata"]["name"]) in usage))
    return {name: amount * OVERCOMMIT - used.get(name, Fraction(0)) for name, amount in total.items()}


def why_not_admitted(group: Object, queue: Object | None, free: Amounts, queue_usage: Amounts) -> str:
    """Reason why a gang is not admitted now ("" when it is).

    Args:
        group: The PodGroup.
        queue: Its queue, None when it does not exist.
        free: Resources of the cluster that are not reserved yet.
        queue_usage: Resources that the queue's gangs hold or have reserved.
    """
    if queue is None:
        return f"queue {group['spec'].get('queue')} not found"
    if ((queue.get("status") or {}).get("state") or "Open") != "Open":
        return f"queue {queue['metadata']['name']} is not open"
    wanted = min_resources(group)
    capability = {name: parse_quantity(q) for name, q in (queue["spec"].get("capability") or {}).items()}
    for name, amount in wanted.items():
        if name in capability and amount + queue_usage.get(name, Fraction(0)) > capability[name]:
            return "queue resource quota insufficient"
        if amount > free.get(name, Fraction(0)):
            return "resource in cluster is overused"
    return ""


def place_gang(
    waiting: Sequence[Object], placed: int, needed: int, nodes: Sequence[Object], usage: Mapping[str, Usage]
) -> GangPlacement:
    """Find room for the whole gang at once.

    Args:
        waiting: Its pods without a node.
        placed: Number of its pods that have one, or have succeeded.
        needed: The gang's size, `minMember`.
        nodes: All nodes.
        usage: Resources in use on each; not changed.
    """
    trial = dict(usage)
    chosen: dict[str, str] = {}
    refusals: dict[str, str] = {}
    for pod in waiting:
        name = pod["metadata"]["name"]
        found = place(pod, nodes, trial)
        if not found.node:
            refusals[name] = _unavailable(found.message, len(nodes))
            continue
        chosen[name] = found.node
        trial[found.node] = trial.get(found.node, Usage()).with_pod(pod)
    if placed + len(chosen) >= needed:
        return GangPlacement(chosen, refusals)
    counts = Counter(Pending=len(waiting), minAvailable=needed)
    if placed:
        counts["Running"] = placed
    listed = ", ".join(sorted(f"{count} {what}" for what, count in counts.items()))
    message = f"pod group is not ready, {listed}; Pending: {_reasons(len(chosen), len(refusals))}"
    unready = needed - placed
    return GangPlacement(
        refusals=refusals, message=f"{unready}/{placed + len(waiting)} tasks in gang unschedulable: {message}"
    )


def _reasons(schedulable: int, unschedulable: int) -> str:
    counts = {"Schedulable": schedulable, "Unschedulable": unschedulable}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _unavailable(message: str, nodes: int) -> str:
    """Volcano's message for a refusal of the default scheduler: the same reasons, without the part on preemption."""
    _, _, reasons = message.partition("nodes are available: ")
    reasons = reasons.partition(". no new claims")[0]
    return f"0/{nodes} nodes are unavailable: {reasons}." if reasons else f"0/{nodes} nodes are unavailable"
