"""Giving back what a run holds: the one place for tear-down, clean-up and the survey of the fleet."""

from __future__ import annotations

from dataclasses import dataclass

from lambdas.backends.backend import Backend
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesBackend
from lambdas.handlers.environment import CacheEnvironment, read
from lambdas.handlers.last_lines import keep_last_lines
from trainflow.models.instances import nodegroup_name


@dataclass(frozen=True)
class Released:
    """What was given back."""

    jobs: list[str]
    nodes: int


def release_run(backend: Backend, nodegroups: Nodegroups, run_id: str, instance_type: str) -> Released:
    """Delete a run's jobs, services and claim, and let its nodes go. Safe to repeat.

    Slurm's nodes are not ours to give back: it ends them itself when no job wants them.
    """
    keep_last_lines(backend, run_id)
    jobs = backend.cancel(run_id)
    if not isinstance(backend, KubernetesBackend):
        return Released(jobs, 0)
    return Released(jobs, release_nodes(backend, nodegroups, instance_type))


def release_caches(run_id: str) -> None:
    """Let others compile what the run did not finish compiling. Safe to repeat.

    A run that keeps its pods and nodes for debugging gets by without: its lease is taken over once it has ended.
    """
    CompileCaches(read(CacheEnvironment).cache_table).release(run_id)


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
