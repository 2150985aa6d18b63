"""The named error of a failed job, by the evidence of its failed pods."""

from __future__ import annotations

from lambdas.backends.backend import Backend
from lambdas.handlers.failed_logs import FailedLogs
from lambdas.logic.gang_failures import failure
from trainflow.errors import TrainflowError
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobRef


def job_failure(
    backend: Backend,
    job: JobRef,
    status: JobStatus,
    *,
    last_step: int | None,
    may_resume: bool = False,
    keeps_logs: bool = False,
) -> TrainflowError:
    """The error to raise for a job whose status is failed; the other arguments are those of `failure`.

    Args:
        backend: The backend of the job.
        job: The job.
        status: Its status.
        last_step: Newest step that rank 0 logged.
        may_resume: Whether a program that logged no step may have taken some.
        keeps_logs: Whether the function may keep the logs that it reads, for the states that follow.
    """
    pods, logs = backend.failed_pods(job), FailedLogs(backend, job.run_id, keeps=keeps_logs)
    failed = [logs.read(pod) for pod in pods]
    return failure(job, status, failed, last_step=last_step, may_resume=may_resume)
