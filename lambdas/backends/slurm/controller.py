"""Requests to Slurm's controller, whichever way they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainflow.models.slurm import Partition, SlurmJob, Submission


class Controller(Protocol):
    """slurmctld. It tells of errors as the rest of the workflow does."""

    def submit(self, job: Submission, *, after: Sequence[int]) -> None:
        """Put a job into the queue, behind others.

        Raises:
            JobRefused: If Slurm will not run it.
            ClusterUnavailable: If it is unknown whether it is in the queue.
        """

    def jobs(self) -> list[SlurmJob]:
        """Every job that it remembers."""

    def job(self, job_id: int) -> SlurmJob | None:
        """One of them."""

    def cancel(self, job_id: int) -> None:
        """End a job; one that has ended is left as it is."""

    def partition(self, name: str) -> Partition | None:
        """A partition; None if there is none of that name."""

    def partitions(self) -> list[Partition]:
        """All of them."""

    def cancelled_by(self, job_id: int) -> str | None:
        """The user who cancelled a job, where the cluster keeps account of that."""
