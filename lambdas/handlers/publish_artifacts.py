"""Task state `PublishArtifacts`: a pod brings the final checkpoint to S3; the run's record goes beside it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from lambdas.gateways import objects
from lambdas.handlers import backends
from lambdas.handlers.environment import ArtifactEnvironment, read
from lambdas.handlers.program import advance_program
from lambdas.handlers.task import task
from lambdas.logic.artifacts import published_record
from lambdas.logic.jobs import job_of
from lambdas.logic.pauses import pause_seconds
from lambdas.logic.watching import decoded_result
from lambdas.models.run import JobRef, MetricsCursor, Run, Stage
from lambdas.models.run_record import Compilation


class Event(BaseModel):
    run: Run
    training: JobRef
    progress: MetricsCursor
    compilation: Compilation | None
    waited_seconds: int = 0
    """In the looks before."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether publishing is finished, and where the artifacts are."""
    environment, backend = read(ArtifactEnvironment), backends.connect(event.run.spec.compute.backend)
    url = environment.url_of(event.run.run_id)
    job = job_of(event.run, Stage.PUBLISH, 1, artifacts_url=url)
    artifacts = advance_program(backend, job)
    if artifacts is None:
        pause = pause_seconds(event.waited_seconds, shortest=event.run.spec.limits.poll_seconds)
        return {"finished": False, "artifacts": None, "wait_seconds": pause}
    rank0 = backends.rank0_pod(backend, event.run.run_id, event.training)
    trained = decoded_result(backend.result(event.training, pod=rank0)).get("result")
    record = published_record(
        event.run, trained=trained, artifacts=artifacts, progress=event.progress, compilation=event.compilation
    )
    key = environment.key_of(event.run.run_id, "run.json")
    objects.write(environment.artifact_bucket, key, json.dumps(record, indent=2))
    return {
        "finished": True,
        "artifacts": {"url": url, **artifacts},
        "training": record["training"],
        "wait_seconds": 0,
    }
