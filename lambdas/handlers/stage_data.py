"""Task state `StageData`: is the data set on the shared file system? If not, a pod brings it there."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.environment import ArtifactEnvironment, read
from lambdas.handlers.program import advance_program
from lambdas.handlers.task import task
from lambdas.logic.jobs import job_of
from lambdas.models.run import Run, Stage


class Event(BaseModel):
    run: Run


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether staging is finished, and what it says of the data set."""
    artifacts_url = read(ArtifactEnvironment).url_of(event.run.run_id)
    job = job_of(event.run, Stage.STAGE, 1, artifacts_url=artifacts_url)
    result = advance_program(backends.connect(), job)
    return {"finished": result is not None, "dataset": result}
