"""Protocol of a backend, the system that runs jobs: everything that differs between values of `compute.backend`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from lambdas.logic.capacity import Capacity
from lambdas.logic.jobs import Job
from lambdas.logic.preflight.findings import Finding
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.record.placement import Placement
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.preflight import Probed
from trainflow.workflow.run import JobRef, Run


@dataclass(frozen=True)
class Examined:
    """Result of a backend's preflight."""

    findings: tuple[Finding, ...]
    probe_started: bool
    """Whether the probe was submitted. It is not where no program of the run could start."""


class Backend(Protocol):
    """A system that runs jobs. Submitting, cancelling and deleting are safe to repeat.

    A `JobRef` is of a job of this backend; methods with a run id apply to all jobs of the run.
    """

    def render(self, job: Job) -> list[dict[str, Any]]:
        """Objects that `submit` would create, in its order, as documents for a person. Makes no call."""

    def submit(self, job: Job) -> None:
        """Create the job. An identical job that exists counts as created."""

    def status(self, job: JobRef) -> JobStatus:
        """Status of the job as a whole."""

    def failed_pods(self, job: JobRef) -> list[Pod]:
        """A few of the job's failed pods, the first to fail first."""

    def peer_pods(self, job: JobRef) -> list[Pod]:
        """Other pods of the job: a few whose program ended with exit code 0, the first to end first, and a few that
        run."""

    def disrupted_pods(self, job: JobRef) -> list[Pod]:
        """Pods of a job that has not failed yet, but cannot go on: the cluster ends these pods."""

    def running_pods(self, job: JobRef) -> list[str]:
        """Names of the job's running pods that have a log of their own, the last one first."""

    def failed_pods_of_run(self, run_id: str) -> list[Pod]:
        """A few failed pods of any job of the run."""

    def pending_reason(self, job: JobRef) -> str | None:
        """Reason why a pod of the job is pending, as the cluster reports it; None without a reported reason."""

    def rank0(self, job: JobRef) -> str | None:
        """Name of the pod that holds rank 0, with one call; None while its location is unknown."""

    def present_rank0(self, run_id: str, pod: str) -> str:
        """Name of the pod that has rank 0 now: another one than `pod` after its job was suspended and resumed."""

    def result(self, job: JobRef, *, pod: str | None = None) -> str | None:
        """The termination message of a pod; of the pod of index 0 if `pod` is None; None while it runs."""

    def read_log(self, pod: str, *, since: datetime | None = None, tail_lines: int | None = None) -> Iterator[LogLine]:
        """Complete lines of a pod's log in the order of writing; none for a pod without a log.

        Args:
            pod: The pod's name.
            since: Only lines at or after this time, a whole second. A repeated call returns the same lines and newer
                ones, unless the log has been replaced.
            tail_lines: Number of last lines to read; None for all.
        """

    def follow_log(self, pod: str, *, since: datetime | None, longest_seconds: float) -> Iterator[LogLine]:
        """Complete lines of a pod's log, including new lines until its program ends.

        It is called before the pod is deleted, and its lines are read after that.

        Args:
            pod: The pod's name.
            since: As `read_log`.
            longest_seconds: Limit for the whole time.
        """

    def pods_to_diagnose(self, run_id: str) -> list[str]:
        """Names of a few pods of the run whose last lines should be kept: those of rank 0 and failed ones."""

    def placement(self, run_id: str) -> Placement | None:
        """Nodes and time of the run's newest training job, with one call; None if its pods are gone, or if the nodes
        are not the cluster's."""

    def cancel(self, run_id: str) -> list[str]:
        """Delete every job of the run; returns their names."""

    def is_stopped(self, run_id: str) -> bool:
        """Whether no program of the run is running any more, after `cancel`: it has time to save its state."""

    def delete(self, job: JobRef, *, grace_seconds: int | None = None) -> None:
        """Delete one job and its pods.

        Args:
            job: The job.
            grace_seconds: Time between SIGTERM and SIGKILL; None for the pods' own, which no backend makes longer.
        """

    def ensure_nodes(self, run: Run, *, waiting_since: datetime) -> Capacity:
        """The number of the gang's ready nodes; requests the others. Safe to repeat.

        Args:
            run: The run.
            waiting_since: When it began to wait for nodes of this instance type.

        Raises:
            GangTooLarge: If the backend can never provide as many nodes.
            AvoidedNodesNotReplaced: If it cannot beside those that the run avoids.
        """

    def release_nodes(self, instance_type: str) -> int:
        """Release the nodes of a type, unless a run needs them; returns their number. Safe to repeat."""

    def examine(self, run: Run, *, start_probe: Callable[[], None], now: datetime) -> Examined:
        """Findings about the run that the backend and its account can provide.

        Args:
            run: The run, before any of its jobs is submitted.
            start_probe: Submits the small program that examines the workload from inside. Called once it is known that
                one can run, and before anything that takes long.
            now: Current time.
        """

    def program_digest(self, probe: JobRef, seen: Probed | Finding) -> str | None:
        """Digest that identifies the program that the run will train, such as the image's; None if it is unknown.

        Args:
            probe: The probe, which has ended.
            seen: Its result, or its problem.
        """
