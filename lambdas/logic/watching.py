"""Judging a job that is watched: phase, timeouts, and the pod, reason and named error of a failure."""

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
"""Longest quotation of a pod's output in an error message: a sentence, not a log."""

BY_REASON: Mapping[str | None, type[TrainflowError]] = {
    "NodeLost": NodeLost,
    "Preempted": JobPreempted,
    "Cancelled": JobCancelled,
    "OutOfMemory": WorkerFailed,
}
"""Errors by the reason that ended a job as a whole. Their message is the status', whatever the programs reported."""

LOST_A_PEER = f"{PEER_LOST}: "
"""Prefix of the result message of a worker that ended because it lost another worker."""

FIRST_SIGNAL_EXIT_CODE = 128
"""Exit codes above it are 128 + the signal that ended the process."""


def cause_of(failed_pods: Sequence[WorkerPod]) -> WorkerPod | None:
    """The pod that failed first. Pods that lost a peer come last: times in whole seconds do not order them."""
    return min(failed_pods, key=lambda pod: LOST_A_PEER in (pod.message or ""), default=None)


def failure(
    job: JobRef, status: JobStatus, cause: WorkerPod | None, *, last_line: str, last_step: int | None
) -> TrainflowError:
    """The named error of a failed job.

    Args:
        job: The job that failed.
        status: Its status, with the reason.
        cause: The pod that made it fail; None if there is none (any more).
        last_line: The last line that the pod's program printed; empty if it explains nothing.
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
    explanation = str(read_result(cause.message).get("message") or last_line)[:MAX_MESSAGE_LENGTH]
    sentence = f"{where}: {explanation}" if explanation else f"{where}."
    if last_step is None and _ended_by_itself(cause):
        return ScriptFailed(sentence)
    return WorkerFailed(sentence)


def _ended_by_itself(pod: WorkerPod) -> bool:
    return pod.exit_code is not None and 0 < pod.exit_code < FIRST_SIGNAL_EXIT_CODE


def _reported(pod: WorkerPod) -> TrainflowError | None:
    """The error that the program named in its result; None if it named none."""
    document = read_result(pod.message)
    error = named_errors().get(str(document.get("error")))
    return error(f"{document.get('message')} (pod '{pod.name}')") if error else None


def phase_since(before: JobPhase, now: JobPhase) -> JobPhase:
    """The phase after a poll. A gang that has been complete does not become pending again: its pods end one by one."""
    return JobPhase.RUNNING if now is JobPhase.PENDING and before is not JobPhase.PENDING else now


def gang_is_overdue(status: JobStatus, *, limits: Limits, now: datetime) -> bool:
    """Whether a job that is still pending was submitted too long ago."""
    limit = timedelta(minutes=limits.gang_timeout_minutes)
    return status.submitted_at is not None and now - status.submitted_at > limit


def incomplete_gang(job: JobRef, pending_reason: str | None, *, limits: Limits) -> GangIncomplete:
    """The error to raise for a gang that did not start completely.

    Args:
        job: The job.
        pending_reason: Reason why one of its pods is pending, as the cluster reports it.
        limits: Limits of the spec.
    """
    minutes = f"{limits.gang_timeout_minutes:g} minutes"
    sentence = f"The job '{job.name}' did not have its {job.gang_size} pods running after {minutes}"
    return GangIncomplete(f"{sentence}: {pending_reason[:MAX_MESSAGE_LENGTH]}" if pending_reason else f"{sentence}.")


def require_progress(job: JobRef, status: JobStatus, progress: MetricsCursor, *, limits: Limits, now: datetime) -> None:
    """Require that a training job logs steps: a job that hangs in a collective appears busy for ever.

    Raises:
        JobStalled: If it has not logged a step for `limits.stall_minutes`.
    """
    if job.stage is not Stage.TRAINING or status.started_at is None:
        return
    last_sign = max(filter(None, (progress.progressed_at, status.started_at)))
    if now - last_sign > timedelta(minutes=limits.stall_minutes):
        step = "its first step" if progress.last_step is None else f"a step after {progress.last_step}"
        raise JobStalled(f"The job '{job.name}' has not logged {step} for {limits.stall_minutes:g} minutes.")
