"""Task state `ValidateRun`: can this run spec be run, and what is the run called?"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from lambdas.errors import DatasetNotFound, InvalidRunSpec
from lambdas.gateways import objects
from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import RunTableEnvironment, read
from lambdas.handlers.task import task
from lambdas.models.run import Run, run_id_for
from lambdas.models.run_spec import RunSpec, excess_of_names, parse_run_spec
from lambdas.models.run_table import row_of


class Event(BaseModel):
    """The execution's input as it came, and what Step Functions says about the execution."""

    spec: Any
    execution_name: str
    execution_arn: str
    started_at: datetime


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The run, with every default of its spec filled in."""
    try:
        run_id = run_id_for(event.execution_name)
    except ValueError as error:
        raise InvalidRunSpec(f"The run cannot be named: {error}.") from None
    spec = parse_run_spec(event.spec)
    _require_names(run_id, spec)
    _require_dataset(spec)
    run = Run(run_id=run_id, execution_arn=event.execution_arn, started_at=event.started_at, spec=spec)
    # Before anything costs money: whoever cleans up after the run finds in the table what it may hold.
    RunTable(read(RunTableEnvironment).run_table).begin(row_of(run))
    return {"run": run.model_dump(mode="json")}


def _require_names(run_id: str, spec: RunSpec) -> None:
    """Executions that were started from the console may have longer names than the spec's own."""
    if (excess := excess_of_names(run_id, spec.compute)) > 0:
        raise InvalidRunSpec(
            f"The execution's name '{run_id}' is {excess} characters too long for the names of the pods that backend "
            f"'{spec.compute.backend}' makes of it; start the execution under a shorter name."
        )


def _require_dataset(spec: RunSpec) -> None:
    """Found missing now, it costs nothing; found missing on the gang, it costs a gang."""
    if spec.dataset is not None and not objects.exists(spec.dataset.bucket, spec.dataset.key):
        raise DatasetNotFound(f"dataset.url: there is no object {spec.dataset.url}, or this run may not read it.")
