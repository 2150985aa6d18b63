"""Jobs of one small program with a result: submitted once, polled until they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lambdas.backends.backend import Backend
from lambdas.handlers import backends
from lambdas.handlers.failures import job_failure
from lambdas.handlers.task import logger
from lambdas.logic.jobs import Job
from lambdas.logic.small_jobs import attempt_after
from trainflow.errors import TrainflowError
from trainflow.protocol.result import read_result
from trainflow.workflow.run import JobPhase


@dataclass(frozen=True)
class Advanced:
    """A program after a poll."""

    job: Job
    """The job that was polled."""
    result: dict[str, Any] | None
    """The program's result; None while it runs, or while another attempt is to be made."""
    attempt: int
    """Attempt that the next poll is about."""


def advance_program(job_of_attempt: Callable[[int], Job], attempt: int) -> Advanced:
    """Submit the job of this attempt unless that has been done, and poll it.

    Raises:
        TrainflowError: If the program failed and is not started again: the error that the program named in its result,
            if it named one.
    """
    job = job_of_attempt(attempt)
    backend = backends.connect(job.ref.backend)
    backend.submit(job)
    try:
        return Advanced(job, outcome_of_program(backend, job), attempt)
    except TrainflowError as failed:
        return Advanced(job, None, next_attempt(job, failed))


def next_attempt(job: Job, failed: TrainflowError) -> int:
    """The attempt after a failed job.

    Raises:
        TrainflowError: The error of the job, if no other attempt is made.
    """
    following = attempt_after(failed, job.ref.attempt)
    logger.warning("a small job is started again", extra={"job": job.ref.name, "reason": str(failed)})
    return following


def outcome_of_program(backend: Backend, job: Job) -> dict[str, Any] | None:
    """The result of a program that was submitted, or None while it runs.

    Raises:
        TrainflowError: If the program failed: the error that it named in its result, if it named one.
    """
    status = backend.status(job.ref)
    if status.phase is None:
        raise job_failure(backend, job.ref, status)
    if status.phase is not JobPhase.SUCCEEDED:
        return None
    result = read_result(backend.result(job.ref)).get("result")
    return result if isinstance(result, dict) else {}
