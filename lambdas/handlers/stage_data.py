"""Task state `StageData`: a pod copies the data set to the shared file system unless it is there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.gateways import data_repository, metrics
from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.program import advance_program
from lambdas.handlers.task import task
from lambdas.logic import metric_data
from lambdas.logic.jobs import job_of
from lambdas.logic.run_limits import require_within_limits
from lambdas.logic.staging import (
    Silence,
    advanced,
    import_advanced,
    is_waiting,
    newest_report,
    require_import_progress,
    require_progress,
)
from trainflow.deployment.environment import ArtifactEnvironment, DeploymentEnvironment, LinkEnvironment
from trainflow.protocol.staging_line import StagingReport
from trainflow.workflow.pauses import pause_seconds
from trainflow.workflow.run import JobPhase, JobRef, Run, Stage, StagingProgress

TAIL_LINES = 20
"""Last lines of the log that are read: the newest report is among them, whatever else the program prints."""


class Event(BaseModel):
    run: Run
    progress: StagingProgress | None = None
    """Progress at the previous poll; None before the first."""
    waited_seconds: int = 0
    """Seconds waited before this poll."""
    attempt: int = 1
    """Attempt of the staging job."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether staging is finished, its result, its progress, and the seconds before the next poll."""
    run, now = event.run, datetime.now(UTC)
    require_within_limits(run, now=now)
    if event.progress is None or event.progress.importing:
        importing = _import_progress(run, event.progress, now=now)
        if importing is not None:
            return _answer(event, None, importing, attempt=event.attempt)
    so_far = event.progress if event.progress and not event.progress.importing else StagingProgress()
    url = read(ArtifactEnvironment).url_of(run.run_id)
    stage = advance_program(lambda attempt: job_of(run, Stage.STAGE, attempt, artifacts_url=url), event.attempt)
    job = stage.job.ref
    report = _heard(backends.connect(job.backend), job)
    if isinstance(report, StagingReport):
        metrics.publish(
            metric_data.of_staging(run.run_id, report, now=now), deployment=read(DeploymentEnvironment).deployment
        )
    progress = advanced(so_far, report, now=now)
    if stage.result is None:
        require_progress(job, progress, limits=run.spec.limits, now=now)
    return _answer(event, stage.result, progress, attempt=stage.attempt)


def _answer(event: Event, result: dict[str, Any] | None, progress: StagingProgress, *, attempt: int) -> dict[str, Any]:
    pause = pause_seconds(event.waited_seconds, shortest=event.run.spec.limits.poll_seconds)
    finished = result is not None
    facts = {"finished": finished, "dataset": result, "attempt": attempt, "progress": progress.model_dump(mode="json")}
    return {**facts, "wait_seconds": 0 if finished else pause}


def _import_progress(run: Run, before: StagingProgress | None, *, now: datetime) -> StagingProgress | None:
    """Progress of FSx's import of a linked data set; None if the pod will find every file.

    Raises:
        StagingStalled: If the import makes no progress.
    """
    if run.linked_folder is None or run.spec.dataset is None:
        return None
    file_system = read(LinkEnvironment).linked_file_system
    seen = data_repository.start_or_poll_import(file_system, run.spec.dataset.url, since=run.started_at)
    if seen.done:
        return None
    progress = import_advanced(before, seen, now=now)
    require_import_progress(seen, progress, limits=run.spec.limits, now=now)
    return progress


def _heard(backend: Backend, job: JobRef) -> StagingReport | Silence:
    """The newest report, or the reason why it is missing."""
    pod = backend.rank0(job)
    lines = [line.text for line in backend.read_log(pod, tail_lines=TAIL_LINES)] if pod else []
    if is_waiting(lines):
        return Silence.WAITS
    if report := newest_report(lines):
        return report
    runs = backend.status(job).phase is JobPhase.RUNNING
    return Silence.UNEXPLAINED if runs else Silence.NOT_RUNNING
