"""What the workflow asks of whatever runs a job, and the plain facts it gets back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from trainflow.models.run import JobPhase, JobRef


@dataclass(frozen=True, kw_only=True)
class WorkerPod:
    """A pod that ended badly, or that holds a result."""

    name: str
    node: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    """In Kubernetes' words: Error, OOMKilled, DeadlineExceeded, Evicted. Slurm's are put into the same."""
    message: str | None = None
    """The container's termination message: a result, or the last lines of its log."""
    finished_at: datetime | None = None


DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Why a job failed: Kubernetes' word for a Job, and for a pod, that was ended for having run too long."""

NO_RECORD = "NoRecord"
"""Why a job failed that left nothing at all, not even how it ended: unless it has trained before, its nodes lack
something, and would again."""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as a whole: its cost to read and its size do not grow with the number of nodes."""

    phase: JobPhase | None
    """None when the job has failed; pending until all pods of the gang run."""
    failure_reason: str | None = None
    failure_message: str | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    """When it began to run, as well as its kind tells; None while it is pending."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a run says that it needs, from before its nodes are asked for until it is cancelled."""

    name: str
    run_id: str
    instance_type: str
    num_nodes: int


class LogLine(NamedTuple):
    """One complete line of a container's log. Millions are made of a long log, so it is the cheapest of types."""

    logged_at: datetime
    text: str


class Backend(Protocol):
    """What runs jobs. Submitting and cancelling are safe to repeat."""

    def submit(self, objects: Sequence[Any]) -> None:
        """Create the job from what its backend makes of it; one that is there already and is the same counts as
        created."""

    def status(self, job: JobRef) -> JobStatus:
        """The job as a whole."""

    def failed_pods(self, job: JobRef) -> list[WorkerPod]:
        """A few of the job's failed pods, the first to fail first."""

    def failed_pods_of_run(self, run_id: str) -> list[WorkerPod]:
        """A few failed pods of any job of the run."""

    def obstacle(self, job: JobRef) -> str | None:
        """What keeps a pod of the job from running, in the cluster's words; None if nothing is known of one."""

    def rank0(self, job: JobRef) -> str | None:
        """Name of the pod of index 0, which holds rank 0 unless the job is elastic; None while it is not there."""

    def result(self, job: JobRef, *, pod: str | None = None) -> str | None:
        """The termination message of a pod, of index 0 if none is named; None while it runs."""

    def read_log(self, pod: str, *, since: datetime | None = None, tail_lines: int | None = None) -> Iterator[LogLine]:
        """Complete lines of a pod's log in the order of writing; a pod that has none yet gives none.

        Args:
            pod: The pod's name.
            since: Only lines at or after this time, a whole second. Asked the same again, it gives the same lines and
                those that have come since, unless the log has been replaced by another one.
            tail_lines: Only so many of the last lines.
        """

    def telling_pods(self, run_id: str) -> list[str]:
        """Names of a few pods of the run whose last words are worth keeping: rank 0's, and those that failed."""

    def elastic_jobs(self, run_id: str) -> list[str]:
        """Names of the run's jobs whose rank 0 may be in any pod, so that it has to say itself in which it is."""

    def cancel(self, run_id: str) -> list[str]:
        """Delete every job of the run; returns their names."""

    def delete(self, job: JobRef) -> None:
        """Delete one job and its pods."""
