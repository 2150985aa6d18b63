"""Task state `ValidateRun`: checks the run spec and makes the run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways import executions
from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger, task
from lambdas.logic.staging import linked_folder
from trainflow.errors import InvalidRunSpec
from trainflow.models.code import unpacked_reason
from trainflow.models.environment import ImagesEnvironment, LinkEnvironment, RunTableEnvironment, ToolsEnvironment
from trainflow.models.image_names import is_allowed
from trainflow.models.run import Run, run_id_for
from trainflow.models.run_record import RunStatus
from trainflow.models.run_spec import RunSpec, decided, excess_name_length, parse_run_spec
from trainflow.models.run_table import row_of
from trainflow.models.spec_limits import require_limits_ahead
from trainflow.record.cost import region_of


class Event(BaseModel):
    """The execution's unchecked input, and the execution's name, ARN and start."""

    spec: Any
    execution_name: str
    execution_arn: str
    started_at: datetime


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The run, with all defaults of its spec filled in."""
    try:
        run_id = run_id_for(event.execution_name)
    except ValueError as error:
        raise InvalidRunSpec(f"The run cannot be named: {error}.") from None
    spec = decided(parse_run_spec(event.spec))
    _require_names(run_id, spec)
    _require_allowed_image(spec.workload.image)
    if reason := unpacked_reason(spec.workload.code):
        raise InvalidRunSpec(reason)
    require_limits_ahead(spec, now=event.started_at, region=region_of(event.execution_arn))
    run = Run(
        run_id=run_id,
        execution_arn=event.execution_arn,
        started_at=event.started_at,
        spec=spec,
        linked_folder=_linked_folder(spec),
        tools_image=read(ToolsEnvironment).tools_image if spec.compute.backend_description.runs_on_kubernetes else None,
    )
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
        table.end(run.run_id, execution_arn=run.execution_arn, status=found.status, ended_at=datetime.now(UTC))


def _require_names(run_id: str, spec: RunSpec) -> None:
    """Require that the names of the pods fit: an execution started from the console may have a long name."""
    if (excess := excess_name_length(run_id, spec.compute)) > 0:
        raise InvalidRunSpec(
            f"The execution's name '{run_id}' is {excess} characters too long for the names of the pods that backend "
            f"'{spec.compute.backend}' makes of it; start the execution under a shorter name."
        )


def _require_allowed_image(image: str | None) -> None:
    allowed = read(ImagesEnvironment).allowed_images
    if image is not None and not is_allowed(image, allowed):
        raise InvalidRunSpec(
            f"workload.image: '{image}' is not among the images that this deployment allows: {', '.join(allowed)}. "
            "Use one of them, or add it to images.allowed and deploy again."
        )


def _linked_folder(spec: RunSpec) -> str | None:
    """Folder of a data set that is linked and not copied. Slurm's nodes have another file system, without links."""
    if spec.dataset is None or not spec.compute.backend_description.runs_on_kubernetes:
        return None
    return linked_folder(spec.dataset, read(LinkEnvironment).linked_url)
