"""Objects and items that runs hold in the clusters and tables of a deployment, and those that ended runs have left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from trainflow.workflow.run import Fact
from trainflow.workflow.run_status import RunStatus

CLAIM = "claim"
GRANT = "grant"
LEASE = "lease"
POD = "Pod"
SERVICE = "Service"
SLURM_JOB = "Slurm job"


class HeldObject(Fact):
    """One thing that belongs to a run."""

    kind: str
    """Kind of the Kubernetes object; or `claim` (on nodes), `grant` (of nodes), `lease` (of a compile cache), `Slurm
    job`."""
    name: str


@dataclass(frozen=True, kw_only=True)
class Held:
    """A thing that belongs to a run, with the training nodes that stay because of it."""

    thing: HeldObject
    run_id: str
    instance_type: str | None = None
    """Type of these nodes; None: the run's."""
    nodes: frozenset[str] = frozenset()
    """Names of nodes that it occupies."""
    num_nodes: int | None = 0
    """Number of nodes that it reserves; None: as many as the run has."""
    path: str = ""
    """Path of its kind in the cluster's API."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """An execution as Step Functions describes it."""

    status: RunStatus
    ended_at: datetime | None = None
    """None while it runs."""
    redriven_at: datetime | None = None
    """Time of the last redrive; None if it was never redriven."""


class LeftoverState(StrEnum):
    """Treatment of objects whose run is not running."""

    LEFT = "left"
    """The run has ended and its clean-up is over: they are deleted."""
    ENDING = "ending"
    """The run has ended so recently that its clean-up may be under way."""
    KEPT = "kept"
    """The run has ended, and its spec keeps them (`teardown`)."""
    UNKNOWN = "unknown"
    """The run table does not have the run; they are never deleted."""
    UNSEEN = "unseen"
    """Step Functions could not be asked whether the run goes on; they are not deleted."""


class RunLeftovers(Fact):
    """Objects of one run that is not running."""

    run_id: str
    state: LeftoverState
    status: RunStatus | None = None
    """Final status of the run; None if unknown."""
    ended_at: datetime | None = None
    objects: tuple[HeldObject, ...]
    instance_type: str | None = None
    """Type of the nodes that stay because of it; None if none does."""
    num_nodes: int = 0
    """Nodes that stay because of it."""
    usd_per_hour: float | None = 0.0
    """On-demand price of these nodes; None where it is not known."""


class SweepReport(BaseModel):
    """Answer of the survey function to `trainflow sweep`. A later version may add fields."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int = 1
    deleted: bool
    """Whether what runs have left was deleted; False if it was only listed."""
    runs: tuple[RunLeftovers, ...]
    nodes_released: Mapping[str, int] = Field(default_factory=dict)
    """Number of nodes that were released at once, by instance type."""
    trouble: tuple[str, ...] = ()
    """Objects that could not be read or deleted, one sentence each."""
