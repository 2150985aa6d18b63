"""Nodes of gangs in an EKS cluster: claimed by runs, brought and released by managed node groups."""

from __future__ import annotations

from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.capacity import Capacity, count_ready, require_fit
from trainflow.models.instances import nodegroup_name
from trainflow.models.run import Run


def ensure_nodes(cluster: KubernetesCluster, nodegroups: Nodegroups, run: Run) -> Capacity:
    """How many of the gang's nodes are ready; the node group grows by those that are not. Safe to repeat.

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
        require_fit(run.spec, nodegroup)  # before it grows: nodes of a gang that cannot be cost as much
        nodegroups.grow_to(nodegroup.name, cluster.claimed_nodes(compute.instance_type))
    return capacity


def release_nodes(cluster: KubernetesCluster, nodegroups: Nodegroups, instance_type: str) -> int:
    """Let the nodes of a type go, unless a run claims some of them.

    Scaling in picks nodes by itself: it must not pick one that trains.

    Returns:
        How many nodes were released.
    """
    if cluster.claimed_nodes(instance_type):
        return 0
    nodegroup = nodegroup_name(instance_type)
    released = nodegroups.release(nodegroup)
    if released and (claimed := cluster.claimed_nodes(instance_type)):
        # A run came in between. It found its nodes there, so it would not ask for them again.
        nodegroups.grow_to(nodegroup, claimed)
        return 0
    return released
