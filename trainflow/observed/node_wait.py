"""A run's wait for its nodes, as EnsureCapacity answered last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainflow.workflow.blockage import Blockage, read_blockage


@dataclass(frozen=True, kw_only=True)
class NodeWait:
    """The number of nodes that a run has, and the reason why the others are missing."""

    instance_type: str
    nodes_ready: int
    """Nodes that are ready for this run."""
    nodes_wanted: int
    blockage: Blockage | None = None
    """Runs that have to end first; None if none has to."""
    shortage: str | None = None
    """AWS's message that it lacks capacity."""
    pending_reason: str | None = None
    """Report of a cluster that makes nodes by itself about the nodes that are missing."""


def read_node_wait(answer: Any) -> NodeWait | None:
    """Parse the answer; None before the first one, and for one that is not complete."""
    if not isinstance(answer, Mapping):
        return None
    try:
        return NodeWait(
            instance_type=str(answer["instance_type"]),
            nodes_ready=int(answer["nodes_ready"]),
            nodes_wanted=int(answer["nodes_wanted"]),
            blockage=read_blockage(answer.get("waits_for")),
            shortage=answer.get("shortage"),
            pending_reason=answer.get("pending_reason"),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
