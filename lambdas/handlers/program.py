"""Jobs of one small program with a result: submitted once, polled until they end."""

from __future__ import annotations

from typing import Any

from lambdas.backends.backend import Backend
from lambdas.handlers.failures import failure_of
from lambdas.logic.jobs import Job
from trainflow.models.run import JobPhase
from trainflow.protocol.result import read_result


def advance_program(backend: Backend, job: Job) -> dict[str, Any] | None:
    """The program's result, or None while it runs. Submits the job unless that has been done.

    Raises:
        TrainflowError: If the program failed: the error that the program named in its result, if it named one.
    """
    backend.submit(job)
    return outcome_of_program(backend, job)


def outcome_of_program(backend: Backend, job: Job) -> dict[str, Any] | None:
    """The result of a program that was submitted, or None while it runs.

    Raises:
        TrainflowError: If the program failed: the error that it named in its result, if it named one.
    """
    status = backend.status(job.ref)
    if status.phase is None:
        raise failure_of(backend, job.ref, status, last_step=None)
    if status.phase is not JobPhase.SUCCEEDED:
        return None
    result = read_result(backend.result(job.ref)).get("result")
    return result if isinstance(result, dict) else {}
