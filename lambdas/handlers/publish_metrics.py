"""Task state `PublishMetrics`: bring the steps that rank 0 has logged since the last look to CloudWatch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways import metrics
from lambdas.handlers import backends
from lambdas.handlers.task import task
from lambdas.logic.step_metrics import advanced, new_steps
from lambdas.models.run import MetricsCursor, Run


class Event(BaseModel):
    run: Run
    rank0: str
    cursor: MetricsCursor


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The cursor behind what has been published."""
    lines = backends.connect().read_log(event.rank0, since=event.cursor.since)
    steps = new_steps(lines, event.cursor)
    metrics.publish(event.run.run_id, steps)
    cursor = advanced(event.cursor, lines, steps, now=datetime.now(UTC))
    return {"cursor": cursor.model_dump(mode="json")}
