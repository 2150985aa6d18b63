"""Task state `ValidateRun`: checks the run spec and makes the run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lambdas.gateways import executions
from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.requests import run_of
from lambdas.handlers.task import logger, task
from trainflow.deployment.environment import RunTableEnvironment
from trainflow.workflow.planned_run import RunRequest
from trainflow.workflow.run import Run
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import row_of


class Event(RunRequest):
    """The state's input."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The run, with all defaults of its spec filled in."""
    run = run_of(event)
    # Before anything costs money: CleanUp reads from the table which resources the run may have.
    table = RunTable(read(RunTableEnvironment).run_table)
    table.begin(row_of(run))
    _end_if_stopped(table, run)
    return {"run": run.model_dump(mode="json")}


def _end_if_stopped(table: RunTable, run: Run) -> None:
    """Note the end of an execution that was stopped before its row existed: CleanUp found no row then.

    The row is written first: an execution that is stopped later is cleaned up by its row.
    """
    try:
        found = executions.describe(run.execution_arn)
    except Exception:  # noqa: BLE001 (a run must not fail because its status cannot be read)
        logger.exception("the execution's status could not be read")
        return
    if found is not None and found.status is not RunStatus.RUNNING:
        table.end(
            run.run_id,
            execution_arn=run.execution_arn,
            status=found.status,
            ended_at=datetime.now(UTC),
            error_name=found.status.value,
        )
