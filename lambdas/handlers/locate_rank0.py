"""Task state `LocateRank0`: finds the pod of rank 0, which prints the metrics."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.task import task
from trainflow.workflow.run import JobRef, Run


class Event(BaseModel):
    run: Run
    job: JobRef


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The pod's name, or null while its location is unknown."""
    return {"pod": backends.connect(event.job.backend).rank0(event.job)}
