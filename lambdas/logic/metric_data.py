"""CloudWatch data points of staging, of steps and of the fleet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from lambdas.logic.fleet import Fleet
from trainflow.models.metric_datum import Datum
from trainflow.models.metric_names import (
    CLUSTER_DIMENSION,
    REPORT_FIELDS,
    RUN_DIMENSION,
    STEP_FIELDS,
    ClusterMetric,
    PublishedField,
    RunMetric,
)
from trainflow.models.run import MetricsCursor
from trainflow.protocol.metrics_line import StepMetrics
from trainflow.protocol.staging_line import StagingReport
from trainflow.protocol.step_report import StepReport


def of_staging(run_id: str, report: StagingReport, *, now: datetime) -> Iterator[Datum]:
    """Data points of the progress of staging, with a resolution of a minute."""
    values = (
        (RunMetric.STAGED_BYTES, report.done_bytes, "Bytes"),
        (RunMetric.STAGING_BYTES_PER_SECOND, report.bytes_per_second, "Bytes/Second"),
        (RunMetric.STAGING_PROGRESS, report.percent, "Percent"),
    )
    for metric, value, unit in values:
        if value is not None:
            yield Datum(metric=metric.value, dimension=RUN_DIMENSION, of=run_id, value=value, at=now, unit=unit)


def of_steps(run_id: str, steps: Sequence[StepMetrics]) -> Iterator[Datum]:
    """Data points of each step's fields in the table `STEP_FIELDS`, at the time in its line."""
    for step in steps:
        yield from _of_fields(run_id, STEP_FIELDS, step, step.logged_at)


def of_reports(run_id: str, reports: Sequence[tuple[datetime, StepReport]]) -> Iterator[Datum]:
    """Data points of each report's fields in the table `REPORT_FIELDS`, where the program filled them in."""
    for logged_at, report in reports:
        yield from _of_fields(run_id, REPORT_FIELDS, report, logged_at)


def of_progress(
    cluster: str, steps: Sequence[StepMetrics], cursor: MetricsCursor, *, min_throughput: float | None, now: datetime
) -> Iterator[Datum]:
    """Data points that the alarms watch, for all runs of a cluster together.

    Args:
        cluster: Name of the cluster.
        steps: Steps that this poll found.
        cursor: The cursor after this poll.
        min_throughput: The spec's lower limit, if it sets one.
        now: Time of the poll.
    """
    diverged = sum(not math.isfinite(step.loss) for step in steps)
    yield _of_cluster(cluster, ClusterMetric.NON_FINITE_LOSS, diverged, now)
    if cursor.progressed_at is not None:
        # Before its first step a run loads and compiles: `limits.stall_minutes` covers that time.
        age = max((now - cursor.progressed_at).total_seconds(), 0.0)
        yield _of_cluster(cluster, ClusterMetric.SECONDS_SINCE_STEP, age, now, unit="Seconds")
    if steps and min_throughput is not None:
        yield _of_cluster(cluster, ClusterMetric.THROUGHPUT_OVER_FLOOR, steps[-1].throughput / min_throughput, now)


def of_fleet(cluster: str, fleet: Fleet, pods: Mapping[str, int], *, now: datetime) -> Iterator[Datum]:
    """Data points of nodes, pods and, where every price is known, cost."""
    values = {
        ClusterMetric.NODES_UP: fleet.nodes_up,
        ClusterMetric.NODES_WITHOUT_RUN: fleet.nodes_without_run,
        ClusterMetric.PODS_RUNNING: pods.get("Running", 0),
        ClusterMetric.PODS_PENDING: pods.get("Pending", 0),
        ClusterMetric.ESTIMATED_USD: fleet.usd,
    }
    for metric, value in values.items():
        if value is not None:
            yield _of_cluster(cluster, metric, value, now)


def _of_fields(
    run_id: str, fields: Sequence[PublishedField], source: StepMetrics | StepReport, at: datetime
) -> Iterator[Datum]:
    for row in fields:
        value = getattr(source, row.field)
        if value is not None:
            yield Datum(
                metric=row.metric.value,
                dimension=RUN_DIMENSION,
                of=run_id,
                value=value,
                at=at,
                unit=row.unit,
                every_second=True,
            )


def _of_cluster(cluster: str, metric: ClusterMetric, value: float, at: datetime, *, unit: str = "None") -> Datum:
    return Datum(metric=metric.value, dimension=CLUSTER_DIMENSION, of=cluster, value=value, at=at, unit=unit)
