"""One node of a gang, as the steps of its plan see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.runtime.environment import Environment
from trainflow.protocol.plan import Launch, Plan, PlanInvalid

SHARED_NOTES = ".trainflow"
"""Folder below the run's folder for notes that the nodes of a gang leave for each other; it is not published."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node with its plan."""

    plan: Plan
    environment: Environment
    """Environment at the start of the supervisor, before the first step."""
    rank: int = 0
    """Number of this node, from 0; always 0 in an elastic gang, whose ranks are assigned at run time."""
    master_addr: str = "localhost"
    """Host name of node 0."""

    @property
    def launch(self) -> Launch:
        """The program of the plan.

        Raises:
            PlanInvalid: If the plan starts none.
        """
        if self.plan.launch is None:
            raise PlanInvalid("launch: is missing.")
        return self.plan.launch

    @property
    def rendezvous(self) -> tuple[str, ...]:
        """Flags of torchrun for a gang whose node ranks are known: rank 0 is always on node 0."""
        launch = self.launch
        return (
            *("--nnodes", str(launch.num_nodes), "--node_rank", str(self.rank)),
            *("--master_addr", self.master_addr, "--master_port", str(launch.port)),
        )


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Result of a step before the program."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of later steps and of the program."""
    words: tuple[str, ...] = ()
    """Words to add to the program's."""
