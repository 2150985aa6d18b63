"""The named error of a failed job, with the output of the pod that caused it."""

from __future__ import annotations

from lambdas.backends.backend import Backend
from lambdas.logic.program_output import last_line
from lambdas.logic.watching import cause_of, failure
from trainflow.errors import TrainflowError
from trainflow.models.job_status import JobStatus
from trainflow.models.run import JobRef

TAIL_LINES = 100
"""Last lines of the log that are read: torchrun's report takes some forty, and the program's output comes before it."""


def failure_of(backend: Backend, job: JobRef, status: JobStatus, *, last_step: int | None) -> TrainflowError:
    """The error to raise for a job whose status is failed."""
    cause = cause_of(backend.failed_pods(job))
    log = backend.read_log(cause.name, tail_lines=TAIL_LINES) if cause else []
    explanation = last_line(line.text for line in log)
    return failure(job, status, cause, last_line=explanation, last_step=last_step)
