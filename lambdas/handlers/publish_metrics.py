"""Task state `PublishMetrics`: bring the steps that rank 0 has logged since the last look to CloudWatch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways import metrics
from lambdas.handlers import backends
from lambdas.handlers.environment import ClusterEnvironment, read
from lambdas.handlers.task import task
from lambdas.logic import metric_data
from lambdas.logic.step_metrics import advanced, new_reports, new_steps
from lambdas.models.run import MetricsCursor, Run


class Event(BaseModel):
    run: Run
    rank0: str
    cursor: MetricsCursor


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The cursor behind what has been published."""
    run_id, cluster, now = event.run.run_id, read(ClusterEnvironment).cluster_name, datetime.now(UTC)
    lines = backends.connect().read_log(event.rank0, since=event.cursor.since)
    steps, reports = new_steps(lines, event.cursor), new_reports(lines, event.cursor)
    cursor = advanced(event.cursor, lines, steps, reports, now=now)
    floor = event.run.spec.limits.min_throughput
    metrics.publish(
        [
            *metric_data.of_progress(cluster, steps, cursor, min_throughput=floor, now=now),
            *metric_data.of_steps(run_id, steps),
            *metric_data.of_reports(run_id, reports),
        ]
    )
    return {"cursor": cursor.model_dump(mode="json")}
