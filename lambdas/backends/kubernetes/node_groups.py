"""Nodes of gangs in an EKS cluster: claimed by runs, started and released by managed node groups."""

from __future__ import annotations

from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.capacity import Capacity, count_ready, require_fit
from trainflow.models.instances import nodegroup_name
from trainflow.models.run import Run


def ensure_nodes(cluster: KubernetesCluster, nodegroups: Nodegroups, run: Run) -> Capacity:
    """The number of the gang's ready nodes; the node group grows by the missing ones. Safe to repeat.

    Raises:
        GangTooLarge: If the node group may never have as many nodes.
    """
    compute = run.spec.compute
    cluster.claim_nodes(run.run_id, compute.instance_type, compute.num_nodes)
    used_by_others = cluster.nodes_used_by_others(run.run_id)
    ready = count_ready(cluster.nodes(compute.instance_type), compute, used_by_others=used_by_others)
    capacity = Capacity(nodes_ready=ready, nodes_wanted=compute.num_nodes)
    if not capacity.ready:
        nodegroup = nodegroups.size(nodegroup_name(compute.instance_type))
        require_fit(run.spec, nodegroup)  # before it grows: nodes of an impossible gang cost money too
        nodegroups.grow_to(nodegroup.name, cluster.claimed_nodes(compute.instance_type))
    return capacity


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
