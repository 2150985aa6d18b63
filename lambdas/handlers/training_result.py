"""Result of a training program, as its rank 0 reports it."""

from __future__ import annotations

from lambdas.backends.backend import Backend
from trainflow.protocol.result import read_result
from trainflow.workflow.run import JobRef


def trained_steps(backend: Backend, training: JobRef) -> int | None:
    """The number of steps that the program has counted; None if it says none, or if its job has been deleted."""
    result = read_result(backend.result(training, pod=backend.rank0(training))).get("result")
    steps = result.get("steps") if isinstance(result, dict) else None
    return steps if isinstance(steps, int) else None
