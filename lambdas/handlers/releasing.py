"""Giving back what a run holds: the one place for tear-down, clean-up and the survey of the fleet."""

from __future__ import annotations

from dataclasses import dataclass

from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesBackend
from lambdas.models.instances import nodegroup_name


@dataclass(frozen=True)
class Released:
    """What was given back."""

    jobs: list[str]
    nodes: int


def release_run(backend: KubernetesBackend, nodegroups: Nodegroups, run_id: str, instance_type: str) -> Released:
    """Delete a run's jobs, services and claim, and let its nodes go. Safe to repeat."""
    jobs = backend.cancel(run_id)
    return Released(jobs, release_nodes(backend, nodegroups, instance_type))


def release_nodes(backend: KubernetesBackend, nodegroups: Nodegroups, instance_type: str) -> int:
    """Let the nodes of a type go, unless a run claims some of them.

    Scaling in picks nodes by itself: it must not pick one that trains.

    Returns:
        How many nodes were given back.
    """
    if backend.claimed_nodes(instance_type):
        return 0
    nodegroup = nodegroup_name(instance_type)
    released = nodegroups.release(nodegroup)
    if released and (claimed := backend.claimed_nodes(instance_type)):
        # A run came in between. It found its nodes there, so it would not ask for them again.
        nodegroups.grow_to(nodegroup, claimed)
        return 0
    return released
