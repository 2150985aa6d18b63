"""Task state `CheckCompilation`: did every graph compile? If one did not, training must not start."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.task import task
from lambdas.logic.compilation import compilation
from lambdas.models.run import JobRef, Run

TAIL_LINES = 200
"""The counts are among the last lines that the compiler prints."""


class Event(BaseModel):
    run: Run
    job: JobRef


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The counts of graphs, and whether they came from the cache."""
    backend = backends.connect()
    pod = backend.rank0(event.job)
    lines = backend.read_log(pod, tail_lines=TAIL_LINES) if pod else []
    return compilation(event.job, (line.text for line in lines)).model_dump(mode="json")
