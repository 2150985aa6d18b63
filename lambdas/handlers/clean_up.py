"""Cleans up after executions that end ABORTED or TIMED_OUT: Step Functions runs no Catch for those.

EventBridge's event names the execution. What the run holds stands in the run table, not in the event: EventBridge
leaves the input out where the state machine is encrypted with a customer's key. Safe to repeat.

A run that somebody stops is torn down whatever its spec says; one that timed out follows `teardown.on_failure`.
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


class Event(BaseModel):
    detail: Detail


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """What was given back."""
    table = RunTable(read(RunTableEnvironment).run_table)
    row = _row(table, event.detail.name)
    if row is None:
        # It did not get past validation, and only validated runs claim nodes.
        return {"run_id": None, "deleted_jobs": [], "nodes_released": 0}
    logger.append_keys(run_id=row.run_id)
    release_caches(row.run_id)
    ended = row.model_copy(update={"status": event.detail.status})
    released = Released([], 0) if ended.needs_nodes else _release(row)
    if row.status is not event.detail.status:
        # Told before it is written down: better twice than never.
        _tell(ended, event.detail.execution_arn, released)
        table.finish(row.run_id, status=ended.status, ended_at=datetime.now(UTC), error_name=ended.status.value)
    return {"run_id": row.run_id, "deleted_jobs": released.jobs, "nodes_released": released.nodes}


def _row(table: RunTable, execution_name: str) -> RunRow | None:
    try:
        return table.find(run_id_for(execution_name))
    except ValueError:
        return None


def _release(row: RunRow) -> Released:
    nodegroups = Nodegroups(read(ClusterEnvironment).cluster_name)
    return release_run(backends.connect(row.backend), nodegroups, row.run_id, row.instance_type)


def _tell(row: RunRow, execution_arn: str, released: Released) -> None:
    text = stopped(
        row.run_id,
        row.status,
        arn=execution_arn,
        jobs=len(released.jobs),
        nodes=released.nodes,
        kept=row.needs_nodes,
    )
    notifications.publish(
        read(NotificationEnvironment).topic_arn, subject=subject(row.run_id, row.status), message=text
    )
