"""Task states `SubmitPrecompile` and `SubmitTraining`: submit the gang's job. A repeated submit makes no second job."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.environment import ArtifactEnvironment, read
from lambdas.handlers.task import task
from lambdas.logic.jobs import job_of
from trainflow.models.compile_cache import CacheUse
from trainflow.models.run import Run, Stage


class Event(BaseModel):
    run: Run
    stage: Stage
    attempt: int
    cache: CacheUse | None


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The reference to the job, which is all that the other states need."""
    artifacts_url = read(ArtifactEnvironment).url_of(event.run.run_id)
    job = job_of(event.run, event.stage, event.attempt, artifacts_url=artifacts_url, cache=event.cache)
    backends.connect(job.ref.backend).submit(job)
    return {"job": job.ref.model_dump(mode="json")}
