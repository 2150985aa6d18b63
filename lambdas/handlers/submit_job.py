"""Task states `SubmitPrecompile` and `SubmitTraining`: submit the gang's job. A repeated submit makes no second job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.task import task
from lambdas.logic.jobs import job_of
from lambdas.logic.run_limits import longest_job
from lambdas.logic.unreachable import long_run_ends, report_unreachable_at, timestamp, unreachable_deadline
from trainflow.deployment.environment import ArtifactEnvironment
from trainflow.workflow.compile_cache import CacheUse
from trainflow.workflow.run import Run, Spending, Stage


class Event(BaseModel):
    run: Run
    stage: Stage
    attempt: int
    cache: CacheUse | None
    submitted_at: datetime
    """Time when the state was entered. It is the same for every attempt, as the job is."""
    spending: Spending = Spending()


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Submit the job. It may exist already.

    Returns:
        job: The reference to the job.
        blind_after: Time to report that the job cannot be polled, unless a poll succeeds before.
        ends_by: Latest end of a job that cannot be polled.
        limit: Error of the limit that the run has reached then; null if the job has ended by itself.
        long_run_ends: Output after this time proves that the job ran for long.
    """
    run, submitted_at = event.run, event.submitted_at
    job = job_of(
        run,
        event.stage,
        event.attempt,
        artifacts_url=read(ArtifactEnvironment).url_of(run.run_id),
        cache=event.cache,
        longest=longest_job(run, event.spending, submitted_at=submitted_at),
    )
    backends.connect(job.ref.backend).submit(job)
    unseen = unreachable_deadline(run, event.spending, submitted_at=submitted_at)
    return {
        "job": job.ref.model_dump(mode="json"),
        "blind_after": timestamp(report_unreachable_at(run.spec.limits, now=datetime.now(UTC))),
        "ends_by": timestamp(unseen.at),
        "limit": unseen.limit,
        "long_run_ends": timestamp(long_run_ends(run.spec.limits, submitted_at=submitted_at)),
    }
