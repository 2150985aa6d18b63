"""The named error of a failed job, by the evidence of its failed pods."""

from __future__ import annotations

from lambdas.backends.backend import Backend
from lambdas.handlers.failed_logs import FailedLogs
from lambdas.logic.gang_failures import failure, waiting_failure
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
    peers = [logs.read(pod) for pod in backend.peer_pods(job)] if job.num_nodes > 1 else []
    return failure(job, status, failed, peers=peers, last_step=last_step, may_resume=may_resume)


def hang_failure(backend: Backend, job: JobRef, hang: TrainflowError, *, last_step: int | None) -> TrainflowError:
    """The error to raise for a running job that hangs: another one if a pod ended before the others.

    Args:
        backend: The backend of the job.
        job: The job.
        hang: What a poll found.
        last_step: Newest step that rank 0 logged.
    """
    if job.num_nodes == 1:
        return hang
    logs = FailedLogs(backend, job.run_id, keeps=False)
    return waiting_failure(job, [logs.read(pod) for pod in backend.peer_pods(job)], hang, last_step=last_step)
