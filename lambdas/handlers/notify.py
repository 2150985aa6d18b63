"""Task states `Notify`, `NotifyFailure` and `NotifyRejection`: send a message about the run's end and record it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import RunTableEnvironment, read
from lambdas.handlers.notifications import notify
from lambdas.handlers.task import logger, task
from lambdas.logic.messages import message, subject
from trainflow.errors import ServiceUnavailable
from trainflow.models.run import MetricsCursor
from trainflow.models.run_record import RunStatus
from trainflow.record.failure import caught_error


class Event(BaseModel):
    run_id: str
    execution_arn: str
    status: RunStatus
    error: dict[str, Any] | None = None
    progress: MetricsCursor | None = None
    artifacts: dict[str, Any] | None = None
    folder: str | None = None
    """Folder of the record and the report; None if they could not be written."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The subject of the message."""
    error = caught_error(event.error) if event.error else None
    title = subject(event.run_id, event.status)
    text = message(
        event.run_id,
        event.status,
        arn=event.execution_arn,
        error=error,
        progress=event.progress,
        artifacts=event.artifacts,
        folder=event.folder,
    )
    notify(subject=title, message=text)
    _record_end(event, error_name=error.name if error else None)
    return {"subject": title}


def _record_end(event: Event, *, error_name: str | None) -> None:
    """Record the end in the run table. An error must not retry the state, because that would send the message again."""
    table = RunTable(read(RunTableEnvironment).run_table)
    try:
        table.finish(event.run_id, status=event.status, ended_at=datetime.now(UTC), error_name=error_name)
    except ServiceUnavailable as unavailable:
        logger.error("the run's end is not in the run table", extra={"reason": str(unavailable)})
