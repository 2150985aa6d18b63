"""Limits of PutMetricData that CloudWatch enforces and moto 5.2.5 does not: times that are too far away, too many
metrics or values, requests that are too large (API reference, 'PutMetricData' and 'MetricDatum'). Statistics of
GetMetricData that moto does not compute, or that are not statistics.

All patches replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from local.aws.replacements import replace

MOST_METRICS = 1_000
"""Metrics of a call."""
MOST_VALUES = 150
"""Values of a metric in a call."""
MOST_BYTES = 1_000_000
"""Size of a call, as it is sent: it may be compressed."""
MAX_AGE, MAX_AHEAD = timedelta(days=14), timedelta(hours=2)
"""Greatest distances of a time from the present."""


def apply() -> None:
    """Apply every patch of this module."""
    _refusals()
    _each_metric_once()
    _statistics()


def _refusals() -> None:
    """Refuse a call as a whole, as CloudWatch does."""
    from moto.cloudwatch.exceptions import InvalidParameterValue, ValidationError
    from moto.cloudwatch.responses import CloudWatchResponse

    present = CloudWatchResponse.put_metric_data

    def put_metric_data(self: Any) -> Any:
        data = self._get_param("MetricData", [])
        if len(data) > MOST_METRICS:
            raise ValidationError(f"The collection MetricData must not have a size greater than {MOST_METRICS}.")
        if int(self.headers.get("Content-Length") or 0) > MOST_BYTES:
            raise ValidationError(f"The request is larger than {MOST_BYTES} bytes.")
        if found := "\n".join(refusals(data, datetime.now(UTC))):
            raise InvalidParameterValue(found)
        return present(self)

    replace(CloudWatchResponse, "put_metric_data", put_metric_data)


def _each_metric_once() -> None:
    """ListMetrics lists a metric once, whatever its number of data points and the order of its dimensions. moto 5.2.5
    lists one for each point."""
    from moto.cloudwatch.models import CloudWatchBackend

    def get_filtered_metrics(self: Any, metric_name: str, namespace: str, dimensions: Any) -> list[Any]:
        once: dict[Any, Any] = {}
        for point in self.get_all_metrics():
            names = frozenset((each.name, each.value) for each in point.dimensions)
            once.setdefault((point.namespace, point.name, names), point)
        return [each for each in once.values() if each.filter(namespace, metric_name, dimensions)]

    replace(CloudWatchBackend, "get_filtered_metrics", get_filtered_metrics)


STATISTICS = ("SampleCount", "Average", "Sum", "Minimum", "Maximum")
_RANKED = re.compile(r"(?P<kind>p|tm)(?P<rank>100|\d{1,2}(\.\d{0,10})?)")
"""Percentile and trimmed mean; the twin computes no other extended statistic (CloudWatch user guide, 'CloudWatch
statistics definitions')."""


def _statistics() -> None:
    """GetMetricData computes percentiles and trimmed means, and refuses what is not a statistic."""
    from moto.cloudwatch.exceptions import ValidationError
    from moto.cloudwatch.models import CloudWatchBackend, Statistics

    get_metric_data, basic = CloudWatchBackend.get_metric_data, Statistics.get_statistics_for_type

    def refuse_others(self: Any, queries: list[dict[str, Any]], *arguments: Any, **named: Any) -> Any:
        wrong = [
            f"The value {stat} for parameter MetricDataQueries.member.{number}.MetricStat.Stat is not a valid "
            "statistic."
            for number, query in enumerate(queries, start=1)
            if "MetricStat" in query and not is_statistic(stat := query["MetricStat"].get("Stat"))
        ]
        if wrong:
            raise ValidationError("\n".join(wrong))
        return get_metric_data(self, queries, *arguments, **named)

    def get_statistics_for_type(self: Any, stat: str) -> Any:
        if stat in STATISTICS:
            return basic(self, stat)
        return ranked(stat, self.metric_single_values_list)

    replace(CloudWatchBackend, "get_metric_data", refuse_others)
    replace(Statistics, "get_statistics_for_type", get_statistics_for_type)


def is_statistic(name: str | None) -> bool:
    """Whether the twin computes a statistic of this name."""
    return name in STATISTICS or _RANKED.fullmatch(name or "") is not None


def ranked(name: str, values: Sequence[float]) -> float | None:
    """A percentile such as `p99`, or a mean such as `tm90` of the values that are not above the percentile.

    Args:
        name: Name of the statistic.
        values: Values of the period, in any order; CloudWatch keeps none of those that came as a statistic set.
    """
    found = _RANKED.fullmatch(name)
    if found is None or not values:
        return None
    ordered = sorted(values)
    position = float(found["rank"]) / 100 * (len(ordered) - 1)
    below, above = ordered[math.floor(position)], ordered[math.ceil(position)]
    percentile = below + (above - below) * (position - math.floor(position))
    if found["kind"] == "p":
        return percentile
    kept = [value for value in ordered if value <= percentile]
    return sum(kept) / len(kept)


def refusals(data: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    """The reason why CloudWatch would refuse the metrics of a call.

    Args:
        data: The metrics, with datetimes as times.
        now: The present.
    """
    for number, metric in enumerate(data, start=1):
        field = f"The parameter MetricData.member.{number}"
        if len(metric.get("Values") or ()) > MOST_VALUES:
            yield f"{field}.Values must not have a size greater than {MOST_VALUES}."
        time = metric.get("Timestamp")
        if time is None:
            continue
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        if time < now - MAX_AGE:
            yield f"{field}.Timestamp must specify a time within the past two weeks."
        if time > now + MAX_AHEAD:
            yield f"{field}.Timestamp must specify a time no more than two hours in the future."
