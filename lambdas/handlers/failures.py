"""The named error of a failed job, by the evidence of its failed pods."""

from __future__ import annotations

from lambdas.backends.backend import Backend
from lambdas.handlers.failed_logs import FailedLogs
from lambdas.logic.watching import FailedPod, failure
from trainflow.errors import TrainflowError
from trainflow.failures.log_lines import MAX_LINES
from trainflow.models.job_status import JobStatus
from trainflow.models.run import JobRef


def job_failure(
    backend: Backend, job: JobRef, status: JobStatus, *, last_step: int | None, may_resume: bool = False
) -> TrainflowError:
    """The error to raise for a job whose status is failed; the arguments are those of `failure`."""
    pods, logs = backend.failed_pods(job), FailedLogs(backend)
    failed = [FailedPod(pod, logs.last_lines(pod.name, tail_lines=MAX_LINES).lines) for pod in pods]
    return failure(job, status, failed, last_step=last_step, may_resume=may_resume)
