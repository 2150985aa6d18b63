"""Nodes of gangs in an EKS cluster: claimed by runs, started and released by managed node groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.capacity import Capacity, available, count_ready, require_fit, shortage_of, unclaimed_nodes
from trainflow.models.instances import nodegroup_name
from trainflow.models.run import Run
from trainflow.models.training_nodes import Grants, Node


def ensure_nodes(cluster: KubernetesCluster, nodegroups: Nodegroups, run: Run, *, waiting_since: datetime) -> Capacity:
    """The number of the gang's ready nodes; the node group grows by the missing ones. Safe to repeat.

    Args:
        cluster: The cluster that the nodes join.
        nodegroups: Its node groups.
        run: The run.
        waiting_since: When the run began to wait for nodes of this type.

    Raises:
        GangTooLarge: If the node group may never have as many nodes.
    """
    compute = run.spec.compute
    cluster.claim_nodes(run.run_id, compute.instance_type, compute.num_nodes)
    nodes = cluster.nodes(compute.instance_type)
    capacity = Capacity(
        nodes_ready=_granted(cluster, nodes, run),
        nodes_wanted=compute.num_nodes,
        ends_at=min((node.ends_at for node in nodes if node.ends_at is not None), default=None),
    )
    if not capacity.ready:
        nodegroup = nodegroups.size(nodegroup_name(compute.instance_type))
        require_fit(run.spec, nodegroup)  # before it grows: nodes of an impossible gang cost money too
        nodegroups.grow_to(nodegroup.name, cluster.claimed_nodes(compute.instance_type))
        if compute.fallback:
            shortage = shortage_of(nodegroups.failed_launches(nodegroup), since=waiting_since)
            capacity = replace(capacity, shortage=shortage)
    return capacity


def _granted(cluster: KubernetesCluster, nodes: Sequence[Node], run: Run) -> int:
    """Nodes that are ready for the run; all that it needs if they have been granted to it, and to no other run.

    Grants of a type are one object, which is replaced only in the version that was read: of two runs that find the same
    nodes ready, one is granted them, and the other polls again.
    """
    compute, instance_type = run.spec.compute, run.spec.compute.instance_type
    grants, claims = cluster.grants(instance_type), cluster.claims(instance_type)
    in_use = cluster.nodes_in_use()
    # A run of an earlier version has no grant; its pods show that it has its nodes.
    training = {run_id for node in nodes for run_id in in_use.get(node.name, ())}
    ready = count_ready(nodes, compute, used_by_others=unclaimed_nodes(in_use, claims))
    left, held = available(run.run_id, nodes_ready=ready, claims=claims, granted=grants.by_run.keys() | training)
    if left < compute.num_nodes:
        return left
    granted = Grants(by_run={**held, run.run_id: compute.num_nodes}, version=grants.version)
    if grants.by_run == granted.by_run or cluster.store_grants(instance_type, granted):
        return compute.num_nodes
    return compute.num_nodes - 1


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
