"""CloudWatch data points of staging, of steps and of the fleet."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lambdas.logic.fleet import Fleet
from trainflow.observed.step import Step
from trainflow.protocol.staging_line import StagingReport
from trainflow.workflow.metric_datum import Datum
from trainflow.workflow.metric_names import (
    CLUSTER_DIMENSION,
    RUN_DIMENSION,
    STEP_FIGURES,
    ClusterMetric,
    RunMetric,
)
from trainflow.workflow.run import MetricsCursor

RESERVED = frozenset(RunMetric)
"""Names of Trainflow's own metrics; a program's figure of such a name is kept for the record only."""


OLDEST = timedelta(days=14) - timedelta(hours=1)
NEWEST = timedelta(hours=2) - timedelta(minutes=10)
"""Times that CloudWatch takes, before and after the present (API reference, PutMetricData: two weeks and two hours),
with room for clocks that differ."""


@dataclass(frozen=True, kw_only=True)
class Sendable:
    """Data points with values, and at times, that CloudWatch takes."""

    data: list[Datum]
    moved: int = 0
    """Points whose time lay too far ahead: a program wrote local time without its zone. They count as of now."""
    dropped: int = 0
    """Points that are too old for CloudWatch, or that it does not accept as numbers; the record has them. Losses that
    are not finite are not counted: they are reported separately."""


def sendable(data: Iterable[Datum], *, now: datetime) -> Sendable:
    """The data points with values, and at times, that CloudWatch takes."""
    sent, moved, dropped = list[Datum](), 0, 0
    for datum in data:
        if not datum.is_number:
            dropped += math.isfinite(datum.value) or datum.metric != RunMetric.STEP_LOSS
        elif datum.at < now - OLDEST:
            dropped += 1
        elif datum.at > now + NEWEST:
            moved += 1
            sent.append(replace(datum, at=now))
        else:
            sent.append(datum)
    return Sendable(data=sent, moved=moved, dropped=dropped)


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


def of_steps(run_id: str, steps: Sequence[Step], names: Collection[str] = ()) -> Iterator[Datum]:
    """Data points of each step, at its time: of the figures in the table `STEP_FIGURES` and of the program's own.

    Args:
        run_id: The run.
        steps: The steps.
        names: The program's own figures that are published, under their own names and without a unit.
    """
    for step in steps:
        for row in STEP_FIGURES:
            value = step.figure(row.name)
            if value is not None:
                yield _run_datum(run_id, row.metric.value, value, step.logged_at, unit=row.unit)
        for name, value in step.metrics.items():
            if name in names and name not in RESERVED:
                yield _run_datum(run_id, name, value, step.logged_at)


def of_progress(
    cluster: str, steps: Sequence[Step], cursor: MetricsCursor, *, min_throughput: float | None, now: datetime
) -> Iterator[Datum]:
    """Data points that the alarms watch, for all runs of a cluster together.

    Args:
        cluster: Name of the cluster.
        steps: Steps that this poll found.
        cursor: The cursor after this poll.
        min_throughput: The spec's lower limit, if it sets one.
        now: Time of the poll.
    """
    diverged = sum(step.loss is not None and not math.isfinite(step.loss) for step in steps)
    yield _cluster_datum(cluster, ClusterMetric.NON_FINITE_LOSS, diverged, now)
    if cursor.progressed_at is not None:
        # Before its first step a run loads and compiles: `limits.stall_minutes` covers that time.
        age = max((now - cursor.progressed_at).total_seconds(), 0.0)
        yield _cluster_datum(cluster, ClusterMetric.SECONDS_SINCE_STEP, age, now, unit="Seconds")
    throughput = next((step.throughput for step in reversed(steps) if step.throughput is not None), None)
    if throughput is not None and min_throughput is not None:
        yield _cluster_datum(cluster, ClusterMetric.THROUGHPUT_OVER_FLOOR, throughput / min_throughput, now)


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
            yield _cluster_datum(cluster, metric, value, now)


def _run_datum(run_id: str, metric: str, value: float, at: datetime, *, unit: str = "None") -> Datum:
    return Datum(metric=metric, dimension=RUN_DIMENSION, of=run_id, value=value, at=at, unit=unit, every_second=True)


def _cluster_datum(cluster: str, metric: ClusterMetric, value: float, at: datetime, *, unit: str = "None") -> Datum:
    return Datum(metric=metric.value, dimension=CLUSTER_DIMENSION, of=cluster, value=value, at=at, unit=unit)
