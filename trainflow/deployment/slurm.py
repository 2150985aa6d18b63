"""Requests to Slurm and its answers, independent of the interface and of its version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

SIGNAL_BEFORE_LIMIT_SECONDS = 120
"""Time for a checkpoint between SIGTERM and the end of the time limit, as Spot and pods have it."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Folders and environment of Slurm's nodes."""

    shared_folder: str
    """Folder of the file system that all nodes mount: holds `data`, `runs`, `cache`, and `jobs` for jobs' output."""
    environment: str
    """Folder of a Python virtual environment."""
    program_folder: str
    """Folder of the `trainer` package and the specs' scripts."""
    small_programs_queue: str | None = None
    """Partition for staging and the like; Slurm's default if None."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Environment that every job gets besides its own."""


@dataclass(frozen=True, kw_only=True)
class JobComment:
    """Content of a job's comment. It identifies our jobs among those of other users."""

    run_id: str
    stage: str
    attempt: int
    spec_hash: str


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to submit."""

    name: str
    script: str
    comment: JobComment
    num_nodes: int
    time_limit_minutes: int
    warn_seconds: int
    """Seconds between SIGTERM and the time limit."""
    partition: str | None = None
    exclusive: bool = False
    """Whether the job has its nodes exclusively."""
    memory_mib: int | None = None
    """Memory on each node; None for all of the node's memory."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes that the job does not use."""


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """A job as slurmctld knows it."""

    job_id: int
    name: str
    user: str
    states: frozenset[str]
    """Its state and the flags beside it: RUNNING, COMPLETING."""
    comment: JobComment | None
    """None for a job that Trainflow did not submit."""
    reason: str | None = None
    """Reason why it waits or failed: Slurm's reason, one word."""
    description: str | None = None
    """The same in a sentence, where Slurm has one."""
    nodes: str | None = None
    """Nodes of the job, in Slurm's notation for lists of nodes."""
    failed_node: str | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    """Time when it ended or, for a running job, will have to end."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A queue of Slurm's."""

    name: str
    num_nodes: int
    max_nodes_per_job: int | None = None
    max_minutes: int | None = None
    """Longest time limit of a job; None without one."""
    is_up: bool = True
    is_default: bool = False
    """Whether jobs that name no partition run here. v0.0.38 and `scontrol` report it, not every version of the API."""


def default_partition(partitions: Sequence[Partition]) -> Partition | None:
    """The partition of jobs that name none: the only one, or else Slurm's default; None if it reports no default."""
    if len(partitions) == 1:
        return partitions[0]
    return next((partition for partition in partitions if partition.is_default), None)
