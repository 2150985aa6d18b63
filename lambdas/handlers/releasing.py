"""Release of a run's resources, for both tear-down and clean-up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lambdas.backends.backend import Backend
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.handlers import recording
from lambdas.handlers.environment import read
from lambdas.handlers.last_lines import keep_last_lines
from trainflow.deployment.environment import CacheEnvironment


@dataclass(frozen=True)
class Released:
    """Deleted jobs and released nodes."""

    jobs: list[str]
    nodes: int


def release_run(backend: Backend, run_id: str, instance_types: Iterable[str]) -> Released:
    """Delete a run's jobs, services and claim, and release its nodes of these types. Safe to repeat."""
    keep_last_lines(backend, run_id)
    recording.keep_placement(lambda: backend, run_id)
    jobs = backend.cancel(run_id)
    return Released(jobs, release_nodes(backend, instance_types))


def release_nodes(backend: Backend, instance_types: Iterable[str]) -> int:
    """Release the nodes of a run that has been cancelled; returns their number. Safe to repeat."""
    return sum(backend.release_nodes(instance_type) for instance_type in instance_types)


def release_caches(run_id: str) -> None:
    """Release the leases of caches that the run did not finish compiling. Safe to repeat.

    A run that keeps its pods and nodes for debugging does not need this: its lease is taken over once it has ended.
    """
    CompileCaches(read(CacheEnvironment).cache_table).release(run_id)
