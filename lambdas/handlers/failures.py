"""The named error of a failed job, by the evidence of its failed pods."""

from __future__ import annotations

from collections.abc import Sequence

from botocore.exceptions import ClientError

from lambdas.backends.backend import Backend
from lambdas.handlers.failed_logs import FailedLogs
from lambdas.handlers.task import logger
from lambdas.logic.departures import PodEvidence
from lambdas.logic.gang_failures import failure, waiting_failure
from lambdas.logic.hangs import StillGang, repeated, with_standstill
from lambdas.logic.opening import with_checkpoint
from trainflow.errors import TrainflowError
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.workflow.run import JobRef, MetricsCursor, Run, Stage


def job_failure(
    backend: Backend,
    job: JobRef,
    status: JobStatus,
    *,
    progress: MetricsCursor | None = None,
    may_resume: bool = False,
    run: Run | None = None,
) -> TrainflowError:
    """The error to raise for a job whose status is failed.

    Args:
        backend: The backend of the job.
        job: The job.
        status: Its status.
        progress: What has been published of rank 0's log; None for a job without steps.
        may_resume: Whether a program that logged no step may have taken some.
        run: The run, for a function that may keep the logs that it reads for the states that follow.
    """
    progress = progress or MetricsCursor()
    pods, logs = backend.failed_pods(job), FailedLogs(backend, job.run_id, keeps=run is not None)
    failed = [logs.read(pod) for pod in pods]
    peers = [logs.read(pod) for pod in backend.peer_pods(job)] if job.num_nodes > 1 else []
    is_training = run is not None and job.stage is Stage.TRAINING
    rank0 = _rank0_evidence(backend, job, logs, [*failed, *peers]) if is_training else None
    last_step = logs.newest_step(rank0.pod.name, run, progress) if run and rank0 else progress.last_step
    error = failure(job, status, failed, peers=peers, last_step=last_step, may_resume=may_resume)
    if run is None or run.spec.described_checkpoint is None or job.stage is not Stage.TRAINING:
        return error
    return with_checkpoint(error, run, [*(each.lines for each in failed), rank0.lines if rank0 else ()])


def gang_evidence(backend: Backend, job: JobRef, *, began: float) -> list[PodEvidence]:
    """Pods of a job that runs, with the last lines of their logs.

    Args:
        backend: The backend of the job.
        job: The job.
        began: When the function began to read logs, on the monotonic clock.
    """
    logs = FailedLogs(backend, job.run_id, keeps=False, began=began)
    return [logs.read(pod) for pod in backend.peer_pods(job)]


def hang_failure(
    job: JobRef,
    status: JobStatus,
    progress: MetricsCursor,
    hang: TrainflowError,
    pods: Sequence[PodEvidence],
    gang: StillGang | None,
) -> TrainflowError:
    """The error to raise for a running job that hangs: another one if a pod ended before the others, or if the attempt
    before hung alike.

    Args:
        job: The job.
        status: Its status.
        progress: What rank 0's log has shown.
        hang: What a poll found.
        pods: Its pods, with the last lines of their logs.
        gang: The conclusion from the stacks in these lines.
    """
    error = repeated(with_standstill(hang, gang), gang, status, progress)
    return error if job.num_nodes == 1 else waiting_failure(job, pods, error, last_step=progress.last_step)


def _rank0_evidence(
    backend: Backend, job: JobRef, logs: FailedLogs, known: Sequence[PodEvidence]
) -> PodEvidence | None:
    """The pod that prints steps, with the last lines of its log; None if it cannot be found."""
    try:
        name = backend.rank0(job)
    except (TrainflowError, ClientError) as error:
        logger.warning("rank 0's pod could not be found", extra={"reason": str(error)})
        return None
    if name is None:
        return None
    return next((each for each in known if each.pod.name == name and each.lines), None) or logs.read(Pod(name=name))
