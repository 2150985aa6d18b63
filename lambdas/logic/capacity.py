"""Capacity of a gang: nodes that exist, are ready and advertise their devices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainflow.errors import AvoidedNodesNotReplaced, CapacityTimeout
from trainflow.nodes.training_nodes import Claim, FailedLaunch, Nodegroup, ScalingGroup
from trainflow.observed.node import Node
from trainflow.spec.run_spec import Compute, RunSpec
from trainflow.workflow.blockage import Blockage
from trainflow.workflow.run import Run


@dataclass(frozen=True)
class Capacity:
    """Number of ready nodes against the size of the gang and its spares."""

    nodes_ready: int
    nodes_wanted: int
    nodes_needed: int | None = None
    """Nodes without that the gang cannot be submitted; None for all that are wanted."""
    shortage: str | None = None
    """Message that more instances of the type cannot be had; None without one, or if it was not asked for."""
    pending_reason: str | None = None
    """Report of a cluster that makes nodes by itself about the nodes that are missing; None without one."""
    waits_for: Blockage | None = None
    """Runs that have to end before this one can have its nodes; None if none has to."""
    ends_at: datetime | None = None
    """End of the capacity block of the first nodes to end; None if unknown."""
    termination_refused: bool = False
    """Whether Auto Scaling refused to terminate a bad node, so that the next poll has to request it again."""
    used_again: tuple[str, ...] = ()
    """Avoided nodes that the run uses again from now on, because the node group is too small without them."""

    @property
    def ready(self) -> bool:
        """Whether the gang can be submitted: all nodes or none, and nothing is left to request."""
        needed = self.nodes_wanted if self.nodes_needed is None else self.nodes_needed
        return self.nodes_ready >= needed and not self.termination_refused


def count_ready(nodes: Iterable[Node], compute: Compute, *, used_by_others: Collection[str]) -> int:
    """Nodes that runs may use: Ready, free of ended runs, and with all devices advertised that the gang needs.

    A node is Ready some seconds before its device plugins have registered; a gang submitted in between would wait
    unschedulable.
    """
    wanted = compute.instance.plugin_devices(compute.num_nodes)
    return sum(
        node.ready and node.name not in used_by_others and node.advertised(wanted) == wanted.keys() for node in nodes
    )


def unclaimed_nodes(in_use: Mapping[str, Collection[str]], claims: Iterable[Claim]) -> set[str]:
    """Nodes that hold pods of a run without a claim: of one that has ended, whose pods are still there."""
    claiming = {claim.run_id for claim in claims}
    return {node for node, runs in in_use.items() if not claiming.issuperset(runs)}


REPLACED_WITHIN = timedelta(minutes=45)
"""Time for the replacement of a node that is not ready any more. EKS's node auto repair does so after 30 minutes (EKS
user guide, "Automatically repair nodes in EKS clusters"), and a node takes a while to start."""


def unusable_nodes(claims: Iterable[Claim], nodes: Iterable[Node]) -> set[str]:
    """Nodes that exist and that a run avoids, or that are lost or about to leave the cluster.

    The group needs one node more for each. One that has been replaced does not exist any more.
    """
    avoided = {name for claim in claims for name in claim.avoided_nodes}
    return {node.name for node in nodes if node.name in avoided or node.is_terminating}


def replaceable_nodes(
    run_id: str, avoided: Collection[str], nodes: Iterable[Node], *, in_use: Mapping[str, Collection[str]]
) -> list[Node]:
    """Nodes that a run avoids and that can be replaced: they are EC2 instances and hold no other run's pods."""
    return [
        node
        for node in nodes
        if node.name in avoided
        and node.replaced_by is None
        and node.instance_id is not None
        and {*in_use.get(node.name, ())} <= {run_id}
    ]


def removable_nodes(
    nodes: Iterable[Node],
    *,
    needed: int,
    unusable: Collection[str],
    in_use: Collection[str],
    group: ScalingGroup,
    minimum: int,
) -> list[Node]:
    """The nodes that can be terminated while runs use others of their type: those that were withdrawn before first.

    Args:
        nodes: The nodes of the type.
        needed: Nodes that runs hold, or are about to be granted.
        unusable: Nodes that a run avoids, or that are lost: the group is larger by these.
        in_use: Nodes that hold pods of runs.
        group: The group that starts them.
        minimum: Minimum size of the group.
    """
    usable = [
        node
        for node in nodes
        if node.name not in unusable
        and node.instance_id in group.in_service
        and node.replaced_by is None
        and (node.ready or node.released)
    ]
    # Of nodes that start, or that a person has cordoned, none is in the place of a usable one.
    surplus = min(group.desired - max(needed + len(unusable), minimum), len(usable) - needed)
    free = sorted((node for node in usable if node.name not in in_use), key=lambda node: not node.released)
    return free[: max(surplus, 0)]


def used_again(
    avoided: Sequence[Node],
    unproven: Collection[str],
    spec: RunSpec,
    nodegroup: Nodegroup,
    *,
    waiting_since: datetime,
    now: datetime,
) -> tuple[str, ...]:
    """The avoided nodes that the run has to use again for its gang to fit; none if it fits without them.

    Nodes that are not ready may be replaced soon, so the run waits for that first.

    Args:
        avoided: Nodes that the run avoids and that exist.
        unproven: Those whose failures may have had another reason, in the order of their failures.
        spec: The run's spec.
        nodegroup: The node group of its type.
        waiting_since: When the run began to wait for nodes of the type.
        now: The time.

    Raises:
        AvoidedNodesNotReplaced: If the node group would have to be larger than it may be because of nodes that are
            proven bad, or that have not become ready again.
    """
    missing = spec.compute.num_nodes + len(avoided) - nodegroup.maximum
    if missing <= 0:
        return ()
    if any(not node.ready for node in avoided) and now - waiting_since < REPLACED_WITHIN:
        return ()
    ready = {node.name for node in avoided if node.ready}
    again = [name for name in unproven if name in ready][:missing]
    if len(again) == missing:
        return tuple(again)
    names = ", ".join(sorted(node.name for node in avoided))
    raise AvoidedNodesNotReplaced(
        f"compute.num_nodes is {spec.compute.num_nodes}, and jobs of the run have failed on {names}; the run avoids "
        f"{'it' if len(avoided) == 1 else 'them'}, but the node group '{nodegroup.name}' may have at most "
        f"{nodegroup.maximum} nodes in all."
    )


SHORTAGES = (
    "InsufficientInstanceCapacity",
    "We currently do not have sufficient",
    "UnfulfillableCapacity",
    "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "ReservationCapacityExceeded",
)
"""Parts of Auto Scaling's messages about launches that other nodes of the type would meet as well: EC2's codes (EC2 API
reference, "Error codes"), or the sentence that Auto Scaling quotes of the first (Auto Scaling user guide, "Amazon EC2
instance launch failure"; aws/containers-roadmap issue 2204 has both)."""


def newest_shortage(launches: Iterable[FailedLaunch], *, since: datetime) -> str | None:
    """The newest message that AWS lacks capacity for the run's nodes.

    Args:
        launches: The group's failed launches.
        since: Begin of the wait. An older failure is another run's, and the capacity may have come back.
    """
    short = [each for each in launches if each.at >= since and any(part in each.message for part in SHORTAGES)]
    return max(short, key=lambda each: each.at).message if short else None


def is_given_up(run: Run, capacity: Capacity, *, waiting_since: datetime, now: datetime) -> bool:
    """Whether the run stops waiting for nodes of this type, because it has another one to try.

    Raises:
        CapacityTimeout: With the number of nodes that were ready, if the limit has passed and no type is left.
    """
    if capacity.ready:
        return False
    spec = run.spec
    overdue = now - waiting_since > timedelta(minutes=spec.limits.capacity_timeout_minutes)
    # Decision 36: the next type is tried at the first reported shortage.
    if spec.compute.fallback:
        return overdue or capacity.shortage is not None
    if overdue:
        before = f" There were none of {', '.join(run.given_up)} before either." if run.given_up else ""
        avoided = run.failed_nodes.avoided
        before += f" The run avoids {', '.join(avoided)}, where its jobs failed." if avoided else ""
        if capacity.pending_reason:
            before += f" The cluster reports: {capacity.pending_reason.rstrip('.')}."
        before += " Auto Scaling refused to terminate a bad node." if capacity.termination_refused else ""
        raise CapacityTimeout(
            f"{capacity.nodes_ready} of {capacity.nodes_wanted} {spec.compute.instance_type} nodes were ready after "
            f"{spec.limits.capacity_timeout_minutes:g} minutes.{before}"
        )
    return False
