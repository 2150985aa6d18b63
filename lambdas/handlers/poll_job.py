"""Task state `PollJob`: polls the phase of a job."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.handlers import backends
from lambdas.handlers.failed_logs import READING_SECONDS
from lambdas.handlers.failures import gang_evidence, hang_failure, job_failure
from lambdas.handlers.task import logger, task
from lambdas.logic.gang_failures import disruption
from lambdas.logic.hangs import breaks_rhythm, hang_by_rhythm, still_gang
from lambdas.logic.run_limits import require_within_limits, seconds_left, warning
from lambdas.logic.signs_of_life import REMEMBERED, shows_life
from lambdas.logic.unreachable import report_unreachable_at, report_unreadable_at, timestamp
from lambdas.logic.watching import (
    is_long_compilation,
    may_be_hopeless,
    pending_for,
    phase_since,
    require_compiler_output,
    require_finite_loss,
    require_hope,
    require_no_hang,
    require_progress,
)
from trainflow.errors import JobStalled, TrainflowError
from trainflow.observed.job import JobStatus
from trainflow.spec.run_spec import Limits
from trainflow.workflow.pauses import watch_seconds
from trainflow.workflow.run import JobPhase, JobRef, MetricsCursor, Run, Spending

NEWEST_LINES = 10
"""Lines of a compiler's log that are read: the last one may be incomplete, and lines may be out of order."""

NEWEST_LINES_OF_OTHERS = 2 * REMEMBERED
"""Last lines of another pod's log that are compared with each other."""

MAX_OTHERS = 4
"""Other pods whose logs are read before a job is ended."""


class Event(BaseModel):
    run: Run
    job: JobRef
    progress: MetricsCursor
    phase: JobPhase = JobPhase.PENDING
    """Phase at the previous poll."""
    log_unread: bool = False
    """Whether the log could not be read since the previous poll: then no step can have been seen."""
    spending: Spending = Spending()


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Poll the job. Its error, and that of a limit that the run has reached, is raised.

    Returns:
        phase: Phase of the job.
        wait_seconds: Seconds until the next poll.
        blind_after: Time to report that the job cannot be polled, unless a later poll succeeds.
        unread_after: Time to report that the log cannot be read, unless it is read before.
        warning: Usage of the run's limits, if the owner should know it; else null.
    """
    began = time.monotonic()
    require_finite_loss(event.job, event.progress, limits=event.run.spec.limits)
    backend = backends.connect(event.job.backend)
    status = backend.status(event.job)
    if status.phase is None:
        spec = event.run.spec
        may_resume = spec.progress == "none" and spec.described_checkpoint is not None
        raise job_failure(backend, event.job, status, progress=event.progress, may_resume=may_resume, run=event.run)
    limits, now = event.run.spec.limits, datetime.now(UTC)
    phase = phase_since(event.phase, status.phase)
    if status.phase is JobPhase.PENDING and not event.job.elastic and (ended := backend.disrupted_pods(event.job)):
        raise disruption(event.job, ended, last_step=event.progress.last_step)
    if phase is JobPhase.PENDING and may_be_hopeless(status, limits=limits, now=now):
        waited = pending_for(status, now=now)
        require_hope(event.job, backend.pending_reason(event.job), waited=waited, limits=limits)
    pause = watch_seconds(now - event.run.started_at, shortest=limits.poll_seconds)
    if phase is not JobPhase.SUCCEEDED and not event.log_unread:
        _require_no_hang(backend, event, status, poll_seconds=pause, now=now, began=began)
    if phase is JobPhase.RUNNING and is_long_compilation(event.job, status, limits=limits, now=now):
        _require_compiler_output(backend, event.job, limits=limits, now=now)
    told = None
    if phase is not JobPhase.SUCCEEDED:
        require_within_limits(event.run, now=now, spending=event.spending, progress=event.progress)
        told = warning(event.run, event.spending, event.progress, now=now)
    left = seconds_left(event.run, event.spending, now=now)
    return {
        "phase": phase.value,
        "wait_seconds": pause if left is None else min(pause, left),
        "blind_after": timestamp(report_unreachable_at(limits, now=now)),
        "unread_after": timestamp(report_unreadable_at(limits, status, event.progress, now=now)),
        "warning": told.model_dump(mode="json") if told else None,
    }


def _require_no_hang(
    backend: Backend, event: Event, status: JobStatus, *, poll_seconds: float, now: datetime, began: float
) -> None:
    job, progress = event.job, event.progress
    try:
        require_no_hang(job, status, progress, poll_seconds=poll_seconds, now=now)
        _require_progress(backend, event, status, now=now, began=began)
    except TrainflowError as hang:
        pods = gang_evidence(backend, job, began=began)
        raise hang_failure(job, status, progress, hang, pods, still_gang(job, pods)) from hang
    if breaks_rhythm(job, status, progress, now=now):
        pods = gang_evidence(backend, job, began=began)
        gang = still_gang(job, pods)
        if gang is not None and gang.is_complete:
            raise hang_failure(job, status, progress, hang_by_rhythm(job, progress, now=now), pods, gang)


def _require_progress(backend: Backend, event: Event, status: JobStatus, *, now: datetime, began: float) -> None:
    """Judge a job by rank 0's log, and before it is ended by the last lines of other pods: Megatron prints its steps on
    the last rank."""
    limits = event.run.spec.limits
    try:
        require_progress(event.job, status, event.progress, limits=limits, now=now)
    except JobStalled:
        if not _others_go_on(backend, event.job, since=now - timedelta(minutes=limits.stall_minutes), began=began):
            raise


def _others_go_on(backend: Backend, job: JobRef, *, since: datetime, began: float) -> bool:
    """Whether the log of one of a few other pods shows a sign of life."""
    try:
        for pod in backend.running_pods(job)[:MAX_OTHERS]:
            if time.monotonic() > began + READING_SECONDS:
                break
            if shows_life(list(backend.read_log(pod, tail_lines=NEWEST_LINES_OF_OTHERS)), since=since):
                return True
    except (TrainflowError, ClientError) as error:
        logger.warning("the log of another pod could not be read", extra={"reason": str(error)})
    return False


def _require_compiler_output(backend: Backend, job: JobRef, *, limits: Limits, now: datetime) -> None:
    """Judge a long compilation by its newest line; not while the log cannot be read."""
    try:
        rank0 = backend.rank0(job)
        lines = list(backend.read_log(rank0, tail_lines=NEWEST_LINES)) if rank0 else None
    except (TrainflowError, ClientError) as error:
        logger.warning("the compiler's log could not be read", extra={"reason": str(error)})
        return
    if lines is not None:
        printed_at = max((line.logged_at for line in lines), default=None)
        require_compiler_output(job, printed_at, limits=limits, now=now)
