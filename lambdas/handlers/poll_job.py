"""Task state `PollJob`: has the job finished?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.failures import failure_of
from lambdas.handlers.task import task
from lambdas.logic.watching import require_progress
from lambdas.models.run import JobRef, MetricsCursor, Run


class Event(BaseModel):
    run: Run
    job: JobRef
    progress: MetricsCursor


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The job's phase; a failed job raises the name of its failure."""
    backend = backends.connect()
    status = backend.status(event.job)
    if status.phase is None:
        raise failure_of(backend, event.job, status, last_step=event.progress.last_step)
    require_progress(event.job, status, event.progress, limits=event.run.spec.limits, now=datetime.now(UTC))
    return {"phase": status.phase.value}
