"""Is a job finished, and if it failed: which pod, why, and what is that called?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from trainflow.errors import (
    GangIncomplete,
    JobCancelled,
    JobDeadlineExceeded,
    JobPreempted,
    JobStalled,
    NodeLost,
    ScriptFailed,
    StorageFailed,
    TrainflowError,
    WorkerFailed,
    named_errors,
)
from trainflow.models.job_status import DEADLINE_EXCEEDED, NO_RECORD, JobStatus, WorkerPod
from trainflow.models.run import JobPhase, JobRef, MetricsCursor, Stage
from trainflow.models.run_spec import Limits
from trainflow.protocol.error_names import PEER_LOST
from trainflow.protocol.result import read_result

MAX_MESSAGE_LENGTH = 500
"""Of a pod's last words inside an error message: a sentence, not a log."""

BY_REASON: Mapping[str | None, type[TrainflowError]] = {
    "NodeLost": NodeLost,
    "Preempted": JobPreempted,
    "Cancelled": JobCancelled,
    "OutOfMemory": WorkerFailed,
}
"""What ended a job as a whole, whatever its programs say of it: the status' message tells it."""

LOST_A_PEER = f"{PEER_LOST}: "
"""In the last words of a worker that ended because another one had gone away."""

FIRST_SIGNAL_EXIT_CODE = 128
"""Exit codes above it are 128 + the signal that ended the process."""


def cause_of(failed_pods: Sequence[WorkerPod]) -> WorkerPod | None:
    """The pod that failed first, but for those that say they lost a peer: Kubernetes tells times to the second."""
    return min(failed_pods, key=lambda pod: LOST_A_PEER in (pod.message or ""), default=None)


def failure(
    job: JobRef, status: JobStatus, cause: WorkerPod | None, *, last_words: str, last_step: int | None
) -> TrainflowError:
    """The named error of a failed job.

    Args:
        job: The job that failed.
        status: Its status, with the reason.
        cause: The pod that made it fail; None if there is none (any more).
        last_words: The last line of that pod's program.
        last_step: Newest step that rank 0 logged; None if it never logged one.
    """
    if DEADLINE_EXCEEDED in (status.failure_reason, cause.reason if cause else None):
        return JobDeadlineExceeded(f"The job '{job.name}' ran longer than limits.max_duration_hours allows.")
    if (named := BY_REASON.get(status.failure_reason)) is not None:
        return named(f"The job '{job.name}' {status.failure_message}.")
    if status.failure_reason == NO_RECORD and last_step is None:
        return StorageFailed(f"The job '{job.name}' {status.failure_message}.")
    if cause is None:
        return WorkerFailed(f"The job '{job.name}' failed: {status.failure_message or status.failure_reason}.")
    if (reported := _reported(cause)) is not None:
        return reported
    where = f"Pod '{cause.name}' on node '{cause.node}' ended with exit code {cause.exit_code}"
    where += f" ({cause.reason or 'Error'})" + ("" if last_step is None else f" after step {last_step}")
    spoken = str(read_result(cause.message).get("message") or last_words)[:MAX_MESSAGE_LENGTH]
    sentence = f"{where}: {spoken}" if spoken else f"{where}."
    if last_step is None and _ended_by_itself(cause):
        return ScriptFailed(sentence)
    return WorkerFailed(sentence)


def _ended_by_itself(pod: WorkerPod) -> bool:
    return pod.exit_code is not None and 0 < pod.exit_code < FIRST_SIGNAL_EXIT_CODE


def _reported(pod: WorkerPod) -> TrainflowError | None:
    """The error that the program itself named in its result, if it did."""
    document = read_result(pod.message)
    error = named_errors().get(str(document.get("error")))
    return error(f"{document.get('message')} (pod '{pod.name}')") if error else None


def phase_since(before: JobPhase, now: JobPhase) -> JobPhase:
    """A gang that has been complete stays so: its pods do not end all at once, and nobody counts them in one moment."""
    return JobPhase.RUNNING if now is JobPhase.PENDING and before is not JobPhase.PENDING else now


def gang_is_overdue(status: JobStatus, *, limits: Limits, now: datetime) -> bool:
    """Whether a job that is still pending was submitted too long ago."""
    limit = timedelta(minutes=limits.gang_timeout_minutes)
    return status.submitted_at is not None and now - status.submitted_at > limit


def incomplete_gang(job: JobRef, pending_reason: str | None, *, limits: Limits) -> GangIncomplete:
    """What to raise for a gang that did not come together.

    Args:
        job: The job.
        pending_reason: What keeps one of its pods, in the cluster's words.
        limits: The spec's.
    """
    minutes = f"{limits.gang_timeout_minutes:g} minutes"
    sentence = f"The job '{job.name}' did not have its {job.gang_size} pods running after {minutes}"
    return GangIncomplete(f"{sentence}: {pending_reason[:MAX_MESSAGE_LENGTH]}" if pending_reason else f"{sentence}.")


def require_progress(job: JobRef, status: JobStatus, progress: MetricsCursor, *, limits: Limits, now: datetime) -> None:
    """A training job has to log a step now and then: a hung collective looks busy for ever.

    Raises:
        JobStalled: If it has not for `limits.stall_minutes`.
    """
    if job.stage is not Stage.TRAINING or status.started_at is None:
        return
    last_sign = max(filter(None, (progress.progressed_at, status.started_at)))
    if now - last_sign > timedelta(minutes=limits.stall_minutes):
        step = "its first step" if progress.last_step is None else f"a step after {progress.last_step}"
        raise JobStalled(f"The job '{job.name}' has not logged {step} for {limits.stall_minutes:g} minutes.")
