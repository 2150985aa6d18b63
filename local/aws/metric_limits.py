"""Limits of PutMetricData that CloudWatch enforces and moto 5.2.5 does not: times that are too far away, too many
metrics or values, requests that are too large (API reference, 'PutMetricData' and 'MetricDatum').

All patches replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

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
