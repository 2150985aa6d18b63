"""Reports of the cluster's autoscaler about pods that wait for nodes, and the order of runs that wait for them.

The reasons are those of events about pods (docs/decisions/0104-nodes-by-the-cluster.md names their sources).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainflow.nodes.training_nodes import Claim
from trainflow.workflow.blockage import MAX_RUNS, Blockage

KARPENTER = ("karpenter", "eks-auto-mode/compute")
"""Components that report for Karpenter: its own name, and that of EKS Auto Mode (events of both quoted in public)."""

CLUSTER_AUTOSCALER = "cluster-autoscaler"

NODES_COME = {
    **dict.fromkeys(((each, "Nominated") for each in KARPENTER), True),
    **dict.fromkeys(((each, "FailedScheduling") for each in KARPENTER), False),
    (CLUSTER_AUTOSCALER, "TriggeredScaleUp"): True,
    (CLUSTER_AUTOSCALER, "NotTriggerScaleUp"): False,
}
"""Whether a node comes for a pod, by component and reason of the event."""


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """The newest report about a pod that waits for a node."""

    text: str
    is_refusal: bool
    """Whether no node comes as things are."""


def newest_report(events: Iterable[Any], *, since: datetime) -> NodeReport | None:
    """The newest report of an autoscaler; None without one.

    Args:
        events: Events about the pod, as the API serves them.
        since: Begin of the wait: an older event is about an earlier pod of the same name.
    """
    found = [(_time(event), _component(event), event) for event in events]
    reports = [
        (at, component, event)
        for at, component, event in found
        if at is not None and at >= since and (component, event.get("reason")) in NODES_COME
    ]
    if not reports:
        return None
    _, component, event = max(reports, key=lambda report: report[0])
    reason, message = event["reason"], str(event.get("message") or "").strip()
    return NodeReport(
        text=f"{component}: {reason}: {message}".rstrip(": "), is_refusal=not NODES_COME[component, reason]
    )


def _component(event: Any) -> str:
    return str(event.get("reportingComponent") or (event.get("source") or {}).get("component") or "")


def _time(event: Any) -> datetime | None:
    """Time of the event's last repetition. The API of events has several fields for it."""
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return datetime.fromisoformat(text) if text else None


def blockage(run_id: str, claims: Iterable[Claim], *, granted: Collection[str]) -> Blockage | None:
    """The runs whose gangs are completed before that of a run; None if it is its turn.

    Nodes are asked for by one gang at a time: two that each hold a part of the nodes that both need would wait for
    each other.

    Args:
        run_id: The run.
        claims: Claims on nodes of its type, its own included.
        granted: Runs whose gangs were complete.
    """
    in_order = sorted(claims, key=lambda claim: (claim.created_at, claim.name))
    waiting = [claim.run_id for claim in in_order if claim.run_id not in granted]
    if run_id not in waiting or waiting[0] == run_id:
        return None
    ahead: Sequence[str] = waiting[: waiting.index(run_id)]
    holding = sorted((claim for claim in in_order if claim.run_id in granted), key=lambda claim: -claim.num_nodes)
    return Blockage(
        maximum=None,
        held={claim.run_id: claim.num_nodes for claim in holding[:MAX_RUNS]},
        num_held=sum(claim.num_nodes for claim in holding),
        ahead=tuple(ahead[:MAX_RUNS]),
        num_ahead=len(ahead),
    )
