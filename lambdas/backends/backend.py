"""What the workflow asks of the system that runs jobs: all that differs between values of `compute.backend`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lambdas.logic.capacity import Capacity
from lambdas.logic.jobs import Job
from lambdas.logic.preflight.findings import Finding
from trainflow.models.job_status import JobStatus, WorkerPod
from trainflow.models.log_line import LogLine
from trainflow.models.preflight import Probed
from trainflow.models.run import JobRef, Run


@dataclass(frozen=True)
class Examined:
    """What a backend found in the way of a run."""

    findings: tuple[Finding, ...]
    probe_started: bool
    """Whether the probe was submitted; not, where no program of the run could start."""


class Backend(Protocol):
    """What runs jobs. Submitting, cancelling and deleting are safe to repeat.

    Jobs are those of this backend; what is asked by a run's id is about all jobs of the run.
    """

    def submit(self, job: Job) -> None:
        """Create the job; one that is there already and is the same counts as created."""

    def status(self, job: JobRef) -> JobStatus:
        """The job as a whole."""

    def failed_pods(self, job: JobRef) -> list[WorkerPod]:
        """A few of the job's failed pods, the first to fail first."""

    def failed_pods_of_run(self, run_id: str) -> list[WorkerPod]:
        """A few failed pods of any job of the run."""

    def pending_reason(self, job: JobRef) -> str | None:
        """What keeps a pod of the job from running, in the cluster's words; None if nothing is known of one."""

    def rank0(self, job: JobRef) -> str | None:
        """Name of the pod that holds rank 0, with one call; None while its location is unknown."""

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

    def pods_to_diagnose(self, run_id: str) -> list[str]:
        """Names of a few pods of the run whose last lines are worth keeping: those of rank 0, and those that failed."""

    def cancel(self, run_id: str) -> list[str]:
        """Delete every job of the run; returns their names."""

    def delete(self, job: JobRef) -> None:
        """Delete one job and its pods."""

    def ensure_nodes(self, run: Run) -> Capacity:
        """How many of the gang's nodes are ready; asks for the others. Safe to repeat.

        Raises:
            GangTooLarge: If no waiting would bring the gang together.
        """

    def release_nodes(self, instance_type: str) -> int:
        """Let the nodes of a type go, unless a run needs them; returns how many were released. Safe to repeat."""

    def examine(self, run: Run, *, start_probe: Callable[[], None], now: datetime) -> Examined:
        """What is in the way of the run, as far as the backend and its account can tell.

        Args:
            run: The run, of which nothing has been started.
            start_probe: Submits the small program that examines the workload from inside. Called once it is known that
                one can run, and before anything that takes long.
            now: The time.
        """

    def program_digest(self, probe: JobRef, seen: Probed | Finding) -> str | None:
        """What tells the program that the run will train from any other: an image's digest, where there is one.

        Args:
            probe: The probe, which has ended.
            seen: What it saw, or what was wrong with it.
        """
