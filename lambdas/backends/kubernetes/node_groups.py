"""Nodes of gangs in an EKS cluster: claimed by runs, started and released by managed node groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.capacity import (
    Capacity,
    count_ready,
    newest_shortage,
    removable_nodes,
    replaceable_nodes,
    unclaimed_nodes,
    unusable_nodes,
    used_again,
)
from lambdas.logic.node_queue import NodeQueue, node_queue
from trainflow.nodes.instances import nodegroup_name
from trainflow.nodes.training_nodes import Claim, Grants, Nodegroup
from trainflow.observed.node import Node
from trainflow.spec.gang_fit import require_fit
from trainflow.workflow.run import Run

MAX_TRIES = 5
"""Number of times that a poll retries grants that another run has changed; the next poll retries as well."""


def ensure_nodes(
    cluster: KubernetesCluster, nodegroups: Nodegroups, run: Run, *, waiting_since: datetime, replaces_bad_nodes: bool
) -> Capacity:
    """The number of the gang's ready nodes; the node group grows by the missing ones. Safe to repeat.

    It grows for whole gangs only (docs/decisions/0094-nodes-for-whole-gangs.md): a run that has to wait for the end of
    others does not keep nodes idle meanwhile.

    Args:
        cluster: The cluster that the nodes join.
        nodegroups: Its node groups.
        run: The run.
        waiting_since: When the run began to wait for nodes of this type.
        replaces_bad_nodes: Whether the deployment replaces bad nodes. Where it does no longer, those that a run has
            cordoned stay.

    Raises:
        GangTooLarge: If the node group may never have as many nodes.
        AvoidedNodesNotReplaced: If it may not have as many beside those that are proven bad.
    """
    compute = run.spec.compute
    mine = run.failed_nodes.avoided
    nodegroup = nodegroups.size(nodegroup_name(compute.instance_type))
    cluster.claim_nodes(run.run_id, compute.instance_type, compute.held_nodes, avoided_nodes=mine)
    for _ in range(MAX_TRIES):
        grants = cluster.grants(
            compute.instance_type
        )  # before the claims: a grant without its claim counts for nothing
        claims, nodes = cluster.claims(compute.instance_type), cluster.nodes(compute.instance_type)
        unusable = unusable_nodes(claims, nodes)
        if not replaces_bad_nodes:
            unusable |= {node.name for node in nodes if node.replaced_by is not None}
        in_use = cluster.nodes_in_use()
        # An unusable node is one of the group's, so the group needs one more in its place, unless it is replaced.
        replaced = {node.name for node in nodes if replaces_bad_nodes and node.replaced_by is not None}
        staying = unusable - replaced
        queue = _queue(nodes, claims, grants, in_use, maximum=nodegroup.maximum - len(staying))
        ready = count_ready(nodes, compute, used_by_others=unclaimed_nodes(in_use, claims).union(unusable))
        granted = _granted(cluster, run, grants, queue, nodes_ready=ready)
        if granted is not None:
            break
    capacity = Capacity(
        nodes_ready=compute.num_nodes - 1 if granted is None else granted,
        nodes_wanted=compute.held_nodes,
        nodes_needed=_needed(run, grants),
        waits_for=queue.blockage(run.run_id),
        ends_at=min((node.ends_at for node in nodes if node.ends_at is not None), default=None),
    )
    if capacity.ready and capacity.nodes_ready < compute.held_nodes:
        nodegroups.grow_to(nodegroup.name, queue.num_nodes + len(staying))  # another spare, while the gang trains
    if not capacity.ready:
        # Before it grows: nodes of an impossible gang cost money too.
        require_fit(run.spec, nodegroup=nodegroup.name, maximum=nodegroup.maximum)
        own = [node for node in nodes if node.name in mine and node.name not in replaced]
        again = used_again(
            own,
            run.failed_nodes.unproven,
            run.spec,
            nodegroup,
            waiting_since=waiting_since,
            now=datetime.now(UTC),
        )
        if again:
            return replace(capacity, used_again=again)  # the next poll claims nodes without avoiding these
        nodegroups.grow_to(nodegroup.name, queue.num_nodes + len(staying))
        if compute.fallback:
            shortage = newest_shortage(nodegroups.failed_launches(nodegroup), since=waiting_since)
            capacity = replace(capacity, shortage=shortage)
    return capacity


def replace_bad_nodes(cluster: KubernetesCluster, nodegroups: Nodegroups, run: Run) -> bool:
    """Cordon the nodes that a run avoids and terminate their instances; Auto Scaling starts others. Safe to repeat.

    The claim is made first: it keeps other runs from being granted these nodes. Pods are listed again after the cordon:
    a node that another run's pod has started to use is left to that run. Nodes that another run has cordoned are
    terminated too: that run may have been stopped in between.

    Returns:
        Whether every termination was accepted.
    """
    compute, avoided = run.spec.compute, run.failed_nodes.avoided
    if avoided:
        cluster.claim_nodes(run.run_id, compute.instance_type, compute.held_nodes, avoided_nodes=avoided)
        nodes = cluster.nodes(compute.instance_type)
        for node in replaceable_nodes(run.run_id, avoided, nodes, in_use=cluster.nodes_in_use()):
            cluster.cordon(node, run_id=run.run_id)
    cordoned = [node for node in cluster.nodes(compute.instance_type) if node.replaced_by is not None]
    in_use, accepted = cluster.nodes_in_use() if cordoned else {}, True
    for node in cordoned:
        if in_use.get(node.name, set()) - {node.replaced_by}:
            cluster.uncordon(node)
        elif node.instance_id is not None:
            accepted = nodegroups.replace(node.instance_id) and accepted
    return accepted


def _queue(
    nodes: Sequence[Node],
    claims: Sequence[Claim],
    grants: Grants,
    in_use: Mapping[str, Collection[str]],
    *,
    maximum: int,
) -> NodeQueue:
    # A run of an earlier version has no grant; its pods show that it has its nodes.
    training = {run_id for node in nodes for run_id in in_use.get(node.name, ())}
    return node_queue(claims, granted=grants.by_run.keys() | training, maximum=maximum)


def _granted(cluster: KubernetesCluster, run: Run, grants: Grants, queue: NodeQueue, *, nodes_ready: int) -> int | None:
    """Nodes that are ready for the run: all that it needs if they have been granted to it, and to no other run; None if
    another run has been granted nodes meanwhile.

    Grants of a type are one object, which is replaced only in the version that was read: of two runs that find the same
    nodes ready, one is granted them, and the other reads again. Nodes that any run avoids are granted to none: the
    scheduler might place another run beside them, and leave them to the one that avoids them.
    """
    compute = run.spec.compute
    left = min(queue.available(run.run_id, nodes_ready=nodes_ready), compute.held_nodes)
    if left < _needed(run, grants):
        return left
    by_run = {**queue.held_by_others(run.run_id), run.run_id: compute.held_nodes}
    # Stored also where the run has been granted them already: a grant outlives the claim of a run that was stopped, and
    # another run may be about to replace it.
    stored = cluster.store_grants(compute.instance_type, Grants(by_run=by_run, version=grants.version))
    return left if stored else None


# Decision 110: spares are waited for once. From then on they stand in for nodes that are lost.
def _needed(run: Run, grants: Grants) -> int:
    """Nodes that have to be ready for the run: with its spares until it has been granted nodes, then without."""
    return run.spec.compute.num_nodes if run.run_id in grants.by_run else run.spec.compute.held_nodes


def release_nodes(cluster: KubernetesCluster, nodegroups: Nodegroups, instance_type: str) -> int:
    """Release the nodes of a type, unless a run claims some of them.

    Scaling in chooses the nodes itself, so it must not happen while one of them trains.

    Returns:
        How many nodes were released.
    """
    if cluster.claimed_nodes(instance_type):
        return 0
    nodegroup = nodegroup_name(instance_type)
    released = nodegroups.release(nodegroup)
    if released and (claimed := cluster.claimed_nodes(instance_type)):
        # A run claimed nodes meanwhile. It found them ready, so it would not request them again.
        nodegroups.grow_to(nodegroup, claimed)
        return 0
    return released


# Decision 66: Auto Scaling would choose the instances itself if the group's size were lowered.
def remove_surplus(cluster: KubernetesCluster, nodegroups: Nodegroups, instance_type: str, *, withdraw: bool) -> int:
    """Terminate nodes that no run needs while runs use others of the type. Safe to repeat.

    Each is cordoned, and the claims and pods are read again before its instance is terminated: a run may have claimed
    it, or a pod may have been placed there. Such a node is given back, also one that a crashed call has left cordoned.

    Args:
        cluster: The cluster.
        nodegroups: Its node groups.
        instance_type: Type of the nodes.
        withdraw: Whether to choose nodes; otherwise those that were withdrawn before are removed or given back.

    Returns:
        How many instances leave.
    """
    nodegroup = nodegroups.size(nodegroup_name(instance_type))
    if withdraw:
        for node in _removable(cluster, nodegroups, instance_type, nodegroup):
            if not node.released:
                cluster.withdraw(node)
    leaving = [node for node in _removable(cluster, nodegroups, instance_type, nodegroup) if node.released]
    removed = sum(nodegroups.remove(node.instance_id) for node in leaving if node.instance_id is not None)
    chosen, group = {node.name for node in leaving}, nodegroups.scaling_group(nodegroup)
    for node in cluster.nodes(instance_type):
        # An instance that does not leave, and that the runs need again.
        if node.released and node.name not in chosen and group and node.instance_id in group.in_service:
            cluster.give_back(node)
    return removed


def _removable(
    cluster: KubernetesCluster, nodegroups: Nodegroups, instance_type: str, nodegroup: Nodegroup
) -> list[Node]:
    group = nodegroups.scaling_group(nodegroup)  # before the claims: a run claims nodes before it asks for them
    if group is None:
        return []
    grants = cluster.grants(instance_type)  # before the claims: a grant without its claim counts for nothing
    claims, nodes = cluster.claims(instance_type), cluster.nodes(instance_type)
    unusable, in_use = unusable_nodes(claims, nodes), cluster.nodes_in_use()
    queue = _queue(nodes, claims, grants, in_use, maximum=nodegroup.maximum - len(unusable))
    return removable_nodes(
        nodes, needed=queue.num_nodes, unusable=unusable, in_use=in_use, group=group, minimum=nodegroup.minimum
    )
