"""Capacity of a gang: nodes that exist, are ready and advertise their devices."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainflow.errors import CapacityTimeout, GangTooLarge
from trainflow.models.run_spec import Compute, RunSpec
from trainflow.models.training_nodes import Node, Nodegroup


@dataclass(frozen=True)
class Capacity:
    """Number of ready nodes against the gang's size."""

    nodes_ready: int
    nodes_wanted: int

    @property
    def ready(self) -> bool:
        """Whether the gang can be submitted: all nodes or none."""
        return self.nodes_ready >= self.nodes_wanted


def count_ready(nodes: Iterable[Node], compute: Compute, *, used_by_others: Collection[str]) -> int:
    """Nodes that this run may use: Ready, free of other runs, and with all devices advertised that the gang needs.

    A node is Ready some seconds before its device plugins have registered; a gang submitted in between would wait
    unschedulable.
    """
    wanted = compute.instance.plugin_devices(compute.num_nodes)
    return sum(
        node.ready and node.name not in used_by_others and node.advertised(wanted) == wanted.keys() for node in nodes
    )


def require_fit(spec: RunSpec, nodegroup: Nodegroup) -> None:
    """Require that the node group can grow to the gang's size: otherwise waiting would be in vain.

    Raises:
        GangTooLarge: If the node group may never have as many nodes.
    """
    if spec.compute.num_nodes > nodegroup.maximum:
        raise GangTooLarge(
            f"compute.num_nodes is {spec.compute.num_nodes}, but the node group '{nodegroup.name}' may have at most "
            f"{nodegroup.maximum} nodes."
        )


def require_time_left(spec: RunSpec, capacity: Capacity, *, waiting_since: datetime, now: datetime) -> None:
    """Stop waiting for nodes after the spec's limit.

    Raises:
        CapacityTimeout: With the number of nodes that were ready, if the limit has passed.
    """
    limit = timedelta(minutes=spec.limits.capacity_timeout_minutes)
    if not capacity.ready and now - waiting_since > limit:
        raise CapacityTimeout(
            f"{capacity.nodes_ready} of {capacity.nodes_wanted} {spec.compute.instance_type} nodes were ready after "
            f"{spec.limits.capacity_timeout_minutes:g} minutes."
        )
