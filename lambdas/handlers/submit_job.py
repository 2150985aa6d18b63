"""Task states `SubmitPrecompile` and `SubmitTraining`: submit the gang's job. A repeated submit makes no second job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.task import task
from lambdas.logic.jobs import job_of
from lambdas.logic.sight import blind_after, ends_by, timestamp
from trainflow.models.compile_cache import CacheUse
from trainflow.models.environment import ArtifactEnvironment
from trainflow.models.run import Run, Stage


class Event(BaseModel):
    run: Run
    stage: Stage
    attempt: int
    cache: CacheUse | None


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The reference to the job, and until when it is watched if it cannot be polled."""
    limits, now = event.run.spec.limits, datetime.now(UTC)
    artifacts_url = read(ArtifactEnvironment).url_of(event.run.run_id)
    job = job_of(event.run, event.stage, event.attempt, artifacts_url=artifacts_url, cache=event.cache)
    backends.connect(job.ref.backend).submit(job)
    return {
        "job": job.ref.model_dump(mode="json"),
        "blind_after": timestamp(blind_after(limits, now=now)),
        "ends_by": timestamp(ends_by(event.run, submitted_at=now)),
    }
