"""Gangs that can never start, because what provides their nodes has too few."""

from __future__ import annotations

from trainflow.errors import GangTooLarge
from trainflow.spec.run_spec import RunSpec


def require_fit(spec: RunSpec, *, nodegroup: str, maximum: int) -> None:
    """Require that the node group can grow to the gang's size: otherwise waiting would be in vain.

    Args:
        spec: Spec of the run.
        nodegroup: Name of the node group.
        maximum: The most nodes that it may have.

    Raises:
        GangTooLarge: If the gang and its spares have more nodes.
    """
    compute = spec.compute
    if compute.held_nodes > maximum:
        spares = f" and compute.spares is {compute.spares}" if compute.spares else ""
        raise GangTooLarge(
            f"compute.num_nodes is {compute.num_nodes}{spares}, but the node group '{nodegroup}' may have at most "
            f"{maximum} nodes."
        )


def require_partition_fit(spec: RunSpec, *, partition: str, maximum: int) -> None:
    """Require that a partition of Slurm takes jobs of the gang's size.

    Args:
        spec: Spec of the run.
        partition: Name of the partition.
        maximum: The most nodes that a job there may have.

    Raises:
        GangTooLarge: If the gang has more nodes.
    """
    if spec.compute.num_nodes > maximum:
        raise GangTooLarge(
            f"compute.num_nodes is {spec.compute.num_nodes}, but a job in the partition '{partition}' may have at most "
            f"{maximum} nodes; ask for fewer, or name another partition as compute.queue."
        )
