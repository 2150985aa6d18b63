"""Task states `Notify`, `NotifyFailure` and `NotifyRejection`: tell people how the run ended."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.gateways import notifications
from lambdas.handlers.environment import NotificationEnvironment, read
from lambdas.handlers.task import task
from lambdas.logic.diagnostics import run_error
from lambdas.logic.messages import message, subject
from lambdas.models.run import MetricsCursor
from lambdas.models.run_record import RunStatus


class Event(BaseModel):
    run_id: str
    execution_arn: str
    status: RunStatus
    error: dict[str, Any] | None = None
    progress: MetricsCursor | None = None
    artifacts: dict[str, Any] | None = None


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """What was sent."""
    error = run_error(event.error) if event.error else None
    title = subject(event.run_id, event.status)
    text = message(
        event.run_id,
        event.status,
        arn=event.execution_arn,
        error=error,
        progress=event.progress,
        artifacts=event.artifacts,
    )
    notifications.publish(read(NotificationEnvironment).topic_arn, subject=title, message=text)
    return {"subject": title}
