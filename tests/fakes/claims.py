"""Claims of runs on nodes of one instance type."""

from __future__ import annotations

from trainflow.nodes.training_nodes import Claim

TYPE = "trn1.2xlarge"


def claim(run_id: str, num_nodes: int, created_at: int) -> Claim:
    """A claim of so many nodes, made so many seconds after the first."""
    return Claim(
        name=f"{run_id}-nodes",
        run_id=run_id,
        instance_type=TYPE,
        num_nodes=num_nodes,
        created_at=f"2026-11-23T12:00:{created_at:02}Z",
    )
