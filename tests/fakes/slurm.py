"""A slurmctld of a list, for what is asked of it whichever way leads there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from trainflow.deployment.slurm import JobComment, Partition, SlurmJob, Submission
from trainflow.errors import ClusterUnavailable

USER = "trainer"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@dataclass
class FakeController:
    """Implements `lambdas.backends.slurm.controller.Controller`."""

    queue: list[SlurmJob] = field(default_factory=list)
    known_partitions: list[Partition] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    waits_for: dict[int, Sequence[int]] = field(default_factory=dict)
    loses_answers: bool = False
    """Jobs get into the queue, but the answer to the submit is lost."""
    canceller: str | None = None

    def submit(self, job: Submission, *, after: Sequence[int]) -> None:
        self.asked.append("submit")
        number = len(self.queue) + 1
        self.waits_for[number] = after
        self.queue.append(job_in_queue(job.name, number, comment=job.comment))
        if self.loses_answers:
            raise ClusterUnavailable("The answer got lost.")

    def jobs(self) -> list[SlurmJob]:
        self.asked.append("jobs")
        return list(self.queue)

    def job(self, job_id: int) -> SlurmJob | None:
        self.asked.append("job")
        return next((job for job in self.queue if job.job_id == job_id), None)

    def cancel(self, job_id: int) -> None:
        self.change(job_id, states=frozenset({"CANCELLED"}))

    def partition(self, name: str) -> Partition | None:
        return next((found for found in self.known_partitions if found.name == name), None)

    def partitions(self) -> list[Partition]:
        return list(self.known_partitions)

    def cancelled_by(self, _job_id: int) -> str | None:
        return self.canceller

    def change(self, job_id: int, **fields: Any) -> None:
        """Let a job get on."""
        self.queue = [replace(job, **fields) if job.job_id == job_id else job for job in self.queue]

    def states(self) -> list[tuple[str, str]]:
        return [(job.name, "+".join(sorted(job.states))) for job in self.queue]


def job_in_queue(name: str, number: int = 1, *, comment: JobComment | None = None, **fields: Any) -> SlurmJob:
    """A job that waits, unless `fields` say otherwise."""
    given: dict[str, Any] = {"user": USER, "states": frozenset({"PENDING"}), "submitted_at": NOW, **fields}
    return SlurmJob(job_id=number, name=name, comment=comment, **given)
