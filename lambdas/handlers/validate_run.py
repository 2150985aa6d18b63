"""Task state `ValidateRun`: checks the run spec and makes the run."""

from __future__ import annotations

from typing import Any

from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.requests import run_of
from lambdas.handlers.task import task
from trainflow.models.environment import RunTableEnvironment
from trainflow.models.planned_run import RunRequest
from trainflow.models.run_table import row_of


class Event(RunRequest):
    """The state's input."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The run, with all defaults of its spec filled in."""
    run = run_of(event)
    # Before anything costs money: CleanUp reads from the table which resources the run may have.
    RunTable(read(RunTableEnvironment).run_table).begin(row_of(run))
    return {"run": run.model_dump(mode="json")}
