"""Task state `ValidateRun`: can this run spec be run, and what is the run called?"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import LinkEnvironment, RunTableEnvironment, ToolsEnvironment, read
from lambdas.handlers.task import task
from lambdas.logic.staging import linked_folder
from trainflow.errors import InvalidRunSpec
from trainflow.models.run import Run, run_id_for
from trainflow.models.run_spec import RunSpec, excess_of_names, parse_run_spec
from trainflow.models.run_table import row_of


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
    run = Run(
        run_id=run_id,
        execution_arn=event.execution_arn,
        started_at=event.started_at,
        spec=spec,
        linked_folder=_linked_folder(spec),
        tools_image=read(ToolsEnvironment).tools_image if spec.compute.backend_description.runs_on_kubernetes else None,
    )
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


def _linked_folder(spec: RunSpec) -> str | None:
    """Where the data lies without a copy. Slurm's nodes have a file system of their own, which nothing links."""
    if spec.dataset is None or not spec.compute.backend_description.runs_on_kubernetes:
        return None
    return linked_folder(spec.dataset, read(LinkEnvironment).linked_url)
