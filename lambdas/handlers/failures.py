"""The named error of a failed job, by the evidence of its failed pods."""

from __future__ import annotations

import time

from lambdas.backends.backend import Backend
from lambdas.handlers.task import logger
from lambdas.logic.watching import FailedPod, failure
from trainflow.errors import TrainflowError
from trainflow.failures.log_lines import MAX_LINES
from trainflow.models.job_status import JobStatus, WorkerPod
from trainflow.models.run import JobRef

READING_SECONDS = 20.0
"""Time after which no further log is read: one that hangs takes 20 seconds more, of the function's 60."""


def failure_of(
    backend: Backend, job: JobRef, status: JobStatus, *, last_step: int | None, may_resume: bool = False
) -> TrainflowError:
    """The error to raise for a job whose status is failed; the arguments are those of `failure`."""
    deadline = time.monotonic() + READING_SECONDS
    pods = [FailedPod(pod, _last_lines(backend, pod, deadline)) for pod in backend.failed_pods(job)]
    return failure(job, status, pods, last_step=last_step, may_resume=may_resume)


def _last_lines(backend: Backend, pod: WorkerPod, deadline: float) -> tuple[str, ...]:
    """The last lines of the pod's log; none if it cannot be read: a lost node answers no requests for its logs."""
    if time.monotonic() > deadline:
        return ()
    try:
        return tuple(line.text for line in backend.read_log(pod.name, tail_lines=MAX_LINES))
    except TrainflowError as error:
        logger.warning("a failed pod's log could not be read", extra={"pod": pod.name, "reason": str(error)})
        return ()
