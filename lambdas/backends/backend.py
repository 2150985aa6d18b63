"""What the workflow asks of the system that runs a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from trainflow.models.job_status import JobStatus, WorkerPod
from trainflow.models.log_line import LogLine
from trainflow.models.run import JobRef


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
