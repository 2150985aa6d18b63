"""Task states `PublishArtifacts` and `PublishAtLimit`: a pod copies the newest checkpoint and the other results of
training to S3."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.program import advance_program
from lambdas.handlers.task import task
from lambdas.handlers.training_result import trained_steps
from lambdas.logic.jobs import job_of
from trainflow.deployment.environment import ArtifactEnvironment
from trainflow.workflow.pauses import pause_seconds
from trainflow.workflow.run import JobRef, Run, Stage


class Event(BaseModel):
    run: Run
    training: JobRef | None = None
    """The job that trained, which may be deleted by now; None for one that was stopped, whose result is gone."""
    waited_seconds: int = 0
    """Seconds waited before this poll."""
    attempt: int = 1
    """Attempt of the publishing job."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether publishing is finished, the URL of the artifacts, and the number of steps that the program reports."""
    url = read(ArtifactEnvironment).url_of(event.run.run_id)
    publish = advance_program(
        lambda attempt: job_of(event.run, Stage.PUBLISH, attempt, artifacts_url=url), event.attempt
    )
    if publish.result is None:
        pause = pause_seconds(event.waited_seconds, shortest=event.run.spec.limits.poll_seconds)
        return {"finished": False, "artifacts": None, "attempt": publish.attempt, "wait_seconds": pause}
    trained = event.training
    return {
        "finished": True,
        "artifacts": {"url": url, **publish.result},
        "attempt": publish.attempt,
        "trained_steps": trained_steps(backends.connect(trained.backend), trained) if trained else None,
        "wait_seconds": 0,
    }
