"""Task state `PollJob`: polls the phase of a job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.failures import failure_of
from lambdas.handlers.task import task
from lambdas.logic.pauses import watch_seconds
from lambdas.logic.watching import gang_is_overdue, incomplete_gang, phase_since, require_progress
from trainflow.models.run import JobPhase, JobRef, MetricsCursor, Run


class Event(BaseModel):
    run: Run
    job: JobRef
    progress: MetricsCursor
    phase: JobPhase = JobPhase.PENDING
    """Phase at the previous poll."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The job's phase, and the seconds before the next poll. A failed job raises its named error."""
    backend = backends.connect(event.job.backend)
    status = backend.status(event.job)
    if status.phase is None:
        raise failure_of(backend, event.job, status, last_step=event.progress.last_step)
    limits, now = event.run.spec.limits, datetime.now(UTC)
    phase = phase_since(event.phase, status.phase)
    if phase is JobPhase.PENDING and gang_is_overdue(status, limits=limits, now=now):
        raise incomplete_gang(event.job, backend.pending_reason(event.job), limits=limits)
    require_progress(event.job, status, event.progress, limits=limits, now=now)
    age = now - event.run.started_at
    return {"phase": phase.value, "wait_seconds": watch_seconds(age, shortest=limits.poll_seconds)}
