"""Cleans up after executions that end without their own tear-down: ABORTED and TIMED_OUT run no Catch, nor does the
FAILED of an execution whose history is full. A failed run whose end stands in the run table has seen to itself.

EventBridge's event names the execution. What the run holds stands in the run table, not in the event: EventBridge
leaves the input out where the state machine is encrypted with a customer's key. Safe to repeat.

A run that somebody stops is torn down whatever its spec says; the others follow `teardown.on_failure`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from lambdas.gateways import notifications
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.runs import RunTable
from lambdas.handlers import backends
from lambdas.handlers.environment import ClusterEnvironment, NotificationEnvironment, RunTableEnvironment, read
from lambdas.handlers.releasing import Released, release_caches, release_run
from lambdas.handlers.task import logger, task
from lambdas.logic.messages import stopped, subject
from lambdas.models.run import run_id_for
from lambdas.models.run_record import RunStatus
from lambdas.models.run_table import RunRow


class Detail(BaseModel):
    name: str
    execution_arn: str = Field(alias="executionArn")
    status: RunStatus
    error: str | None = None
    """None where EventBridge leaves it out."""


class Event(BaseModel):
    detail: Detail


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """What was given back."""
    table = RunTable(read(RunTableEnvironment).run_table)
    row = _row(table, event.detail)
    if row is None or _has_ended_by_itself(row, event.detail.status):
        return {"run_id": row and row.run_id, "deleted_jobs": [], "nodes_released": 0}
    logger.append_keys(run_id=row.run_id)
    release_caches(row.run_id)
    ended = row.model_copy(update={"status": event.detail.status})
    released = Released([], 0) if ended.needs_nodes else _release(row)
    if row.status is not event.detail.status:
        # Told before it is written down: better twice than never.
        _tell(ended, event.detail, released)
        error_name = event.detail.error or ended.status.value
        table.finish(row.run_id, status=ended.status, ended_at=datetime.now(UTC), error_name=error_name)
    return {"run_id": row.run_id, "deleted_jobs": released.jobs, "nodes_released": released.nodes}


def _row(table: RunTable, detail: Detail) -> RunRow | None:
    """The execution's own row. One that did not get past validation has none, and only validated runs claim nodes.

    It may have been refused because a run of its name goes on: that one's row is none of its business.
    """
    try:
        row = table.find(run_id_for(detail.name))
    except ValueError:
        return None
    return row if row and row.execution_arn == detail.execution_arn else None


def _has_ended_by_itself(row: RunRow, status: RunStatus) -> bool:
    """Whether it was torn down, or was to keep its pods, and people were told."""
    return status is RunStatus.FAILED and row.status is not RunStatus.RUNNING


def _release(row: RunRow) -> Released:
    nodegroups = Nodegroups(read(ClusterEnvironment).cluster_name)
    return release_run(backends.connect(row.backend), nodegroups, row.run_id, row.instance_type)


def _tell(row: RunRow, detail: Detail, released: Released) -> None:
    text = stopped(
        row.run_id,
        row.status,
        arn=detail.execution_arn,
        error_name=detail.error,
        jobs=len(released.jobs),
        nodes=released.nodes,
        kept=row.needs_nodes,
    )
    notifications.publish(
        read(NotificationEnvironment).topic_arn, subject=subject(row.run_id, row.status), message=text
    )
