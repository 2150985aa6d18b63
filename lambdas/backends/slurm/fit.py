"""Check whether Slurm can run the gang. A gang that would be pending for ever is refused before anything starts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lambdas.logic.preflight.findings import Finding, Note, Problem
from trainflow.models.run_spec import RunSpec
from trainflow.models.slurm import Partition


def of_partition(spec: RunSpec, partition: Partition | None) -> Iterator[Finding]:
    """Findings about the gang's partition.

    Args:
        spec: Spec of the run.
        partition: The partition that `compute.queue` names, or Slurm's default; None if there is none or it is unknown.
    """
    compute = spec.compute
    if partition is None and compute.queue is None:
        yield Note(
            "compute.queue: left out, and Slurm does not report which partition is its default; none was checked."
        )
        return
    if partition is None:
        yield Problem(f"compute.queue is '{compute.queue}', but Slurm has no such partition; `sinfo` lists them.")
        return
    if not partition.is_up:
        named = (
            f"is '{compute.queue}'" if compute.queue else f"is left out, so it is Slurm's default '{partition.name}'"
        )
        yield Problem(f"compute.queue {named}, which is not up and starts no jobs; `scontrol` opens it.")
    most = min(partition.num_nodes, partition.max_nodes_per_job or partition.num_nodes)
    if compute.num_nodes > most:
        yield Problem(
            f"compute.num_nodes is {compute.num_nodes}, but a job in the partition '{partition.name}' may have at most "
            f"{most} nodes; ask for fewer, or name another partition as compute.queue."
        )
    minutes = math.ceil(spec.limits.max_duration_hours * 60)
    if partition.max_minutes is not None and minutes > partition.max_minutes:
        yield Problem(
            f"limits.max_duration_hours is {spec.limits.max_duration_hours:g}, but the partition '{partition.name}' "
            f"ends jobs after {partition.max_minutes / 60:.4g} hours; ask for less, or name another partition as "
            "compute.queue."
        )
