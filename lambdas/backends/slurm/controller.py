"""Protocol of the connections to Slurm's controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainflow.deployment.slurm import Partition, SlurmJob, Submission


class Controller(Protocol):
    """slurmctld. Methods raise the workflow's named errors."""

    def submit(self, job: Submission, *, after: Sequence[int]) -> None:
        """Put a job into the queue, behind others.

        Raises:
            JobRefused: If Slurm refuses it.
            ClusterUnavailable: If it is unknown whether it is in the queue.
        """

    def jobs(self) -> list[SlurmJob]:
        """All jobs that slurmctld has in memory."""

    def job(self, job_id: int) -> SlurmJob | None:
        """A job by its id; None if slurmctld does not have it (any more)."""

    def cancel(self, job_id: int) -> None:
        """End a job; a job that has ended stays as it is."""

    def partition(self, name: str) -> Partition | None:
        """The partition with that name; None if it does not exist."""

    def partitions(self) -> list[Partition]:
        """All partitions."""

    def cancelled_by(self, job_id: int) -> str | None:
        """The user who cancelled a job, where the cluster has accounting; None otherwise."""
