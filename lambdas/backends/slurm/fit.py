"""Check whether Slurm can run the gang. A gang that would be pending for ever is refused before anything starts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lambdas.logic.preflight.findings import Finding, Note, Problem
from trainflow.deployment.slurm import Partition
from trainflow.errors import GangTooLarge
from trainflow.spec.gang_fit import require_partition_fit
from trainflow.spec.run_spec import RunSpec


def partition_findings(spec: RunSpec, partition: Partition | None) -> Iterator[Finding]:
    """Findings about the gang's partition.

    Args:
        spec: Spec of the run.
        partition: The partition that `compute.queue` names, or Slurm's default; None if it does not exist or is
            unknown.
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
    try:
        require_partition_fit(spec, partition=partition.name, maximum=most)
    except GangTooLarge as error:
        yield Problem(str(error))
    minutes = math.ceil(spec.limits.max_duration_hours * 60)
    if partition.max_minutes is not None and minutes > partition.max_minutes:
        yield Problem(
            f"limits.max_duration_hours is {spec.limits.max_duration_hours:g}, but the partition '{partition.name}' "
            f"ends jobs after {partition.max_minutes / 60:.4g} hours; ask for less, or name another partition as "
            "compute.queue."
        )
