"""Task state `StageData`: is the data set on the shared file system? If not, a pod brings it there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways import data_repository, metrics
from lambdas.gateways.backend import Backend
from lambdas.handlers import backends
from lambdas.handlers.environment import ArtifactEnvironment, LinkEnvironment, read
from lambdas.handlers.program import advance_program
from lambdas.handlers.task import task
from lambdas.logic import metric_data
from lambdas.logic.jobs import job_of
from lambdas.logic.staging import advanced, newest_report, require_progress
from lambdas.models.run import JobRef, Run, Stage, StagingProgress
from lambdas.models.staging_line import StagingReport

TAIL_LINES = 20
"""Of the log: the newest report is among them, whatever else the program says."""


class Event(BaseModel):
    run: Run
    progress: StagingProgress | None = None
    """After the look before; None until the pod has been submitted."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether staging is finished, what it says of the data set, and how far it is."""
    run, now = event.run, datetime.now(UTC)
    if event.progress is None and not _is_visible(run):
        return {"finished": False, "dataset": None, "progress": None}
    job = job_of(run, Stage.STAGE, 1, artifacts_url=read(ArtifactEnvironment).url_of(run.run_id))
    backend = backends.connect(run.spec.compute.backend)
    result = advance_program(backend, job)
    report = _report(backend, job.ref)
    if report is not None:
        metrics.publish(metric_data.of_staging(run.run_id, report, now=now))
    progress = advanced(event.progress or StagingProgress(), report, now=now)
    if result is None:
        require_progress(job.ref, progress, limits=run.spec.limits, now=now)
    return {"finished": result is not None, "dataset": result, "progress": progress.model_dump(mode="json")}


def _is_visible(run: Run) -> bool:
    """Whether the pod will find every file of a data set that the file system is linked to."""
    if run.linked_folder is None or run.spec.dataset is None:
        return True
    file_system = read(LinkEnvironment).linked_file_system
    return data_repository.imported(file_system, run.spec.dataset.url, since=run.started_at)


def _report(backend: Backend, job: JobRef) -> StagingReport | None:
    pod = backend.rank0(job)
    lines = backend.read_log(pod, tail_lines=TAIL_LINES) if pod else []
    return newest_report(line.text for line in lines)
