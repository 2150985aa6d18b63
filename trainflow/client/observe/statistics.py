"""Statistics of a run's published steps in CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from trainflow.client.refusals import told
from trainflow.record.published import PeriodStatistics
from trainflow.workflow.metric_names import DEPLOYMENT_DIMENSION, NAMESPACE, RUN_DIMENSION, RunMetric

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch.client import CloudWatchClient


MAX_PERIODS_PER_CALL = 1440
"""Quota of GetMetricStatistics."""

RETENTION = (
    (timedelta(hours=3), 1),
    (timedelta(days=15), 60),
    (timedelta(days=63), 300),
    (timedelta(days=455), 3600),
)
"""Finest period in seconds of CloudWatch's data, by its age (CloudWatch's user guide, "Metrics retention")."""


@told
def read_statistics(
    cloudwatch: CloudWatchClient, run_id: str, *, deployment: str, start: datetime, end: datetime, now: datetime
) -> list[PeriodStatistics]:
    """Count and sum of the step losses that were published for each period between two times.

    Args:
        cloudwatch: boto3's client.
        run_id: The run.
        deployment: The deployment that published its metrics.
        start: First moment with possible data.
        end: Last moment.
        now: With the age of `start`, it decides the finest period that CloudWatch still has.

    Raises:
        PlaceRefused: If the caller may not read them, or CloudWatch does not answer.
    """
    period = finest_period(now - start)
    found: list[PeriodStatistics] = []
    for window_start, window_end in _windows(start, end, period):
        answer = cloudwatch.get_metric_statistics(
            Namespace=NAMESPACE,
            MetricName=RunMetric.STEP_LOSS.value,
            Dimensions=[
                {"Name": DEPLOYMENT_DIMENSION, "Value": deployment},
                {"Name": RUN_DIMENSION, "Value": run_id},
            ],
            StartTime=window_start,
            EndTime=window_end,
            Period=period,
            Statistics=["SampleCount", "Sum"],
        )
        found += [
            PeriodStatistics(point["Timestamp"], period, int(point["SampleCount"]), point["Sum"])
            for point in answer["Datapoints"]
        ]
    return sorted(found, key=lambda statistics: statistics.start)


def finest_period(age: timedelta) -> int:
    """The shortest period, in seconds, that CloudWatch still has for data of this age."""
    return next((period for kept, period in RETENTION if age < kept), RETENTION[-1][1])


def _windows(start: datetime, end: datetime, period: int) -> Iterator[tuple[datetime, datetime]]:
    """Stretches of whole periods that cover start to end, each small enough for one call."""
    first = datetime.fromtimestamp(start.timestamp() // period * period, tz=start.tzinfo)
    step = timedelta(seconds=period * MAX_PERIODS_PER_CALL)
    while first <= end:
        last = min(first + step, end + timedelta(seconds=period))
        yield first, last
        first = first + step
