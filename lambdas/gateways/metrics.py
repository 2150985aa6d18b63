"""Amazon CloudWatch: the step metrics of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lambdas.gateways.aws import client, translated
from lambdas.models.metric_names import NAMESPACE, RUN_DIMENSION
from lambdas.models.metrics_line import StepMetrics

MAX_DATA_PER_CALL = 1000
"""Quota of PutMetricData."""


def publish(run_id: str, steps: Sequence[StepMetrics]) -> None:
    """Put loss, learning rate and throughput of each step, at the time that its log line names."""
    for chunk in _chunks(list(_data(run_id, steps))):
        with translated("cloudwatch:PutMetricData"):
            client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=chunk)


def _chunks(data: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    return (data[start : start + MAX_DATA_PER_CALL] for start in range(0, len(data), MAX_DATA_PER_CALL))


def _data(run_id: str, steps: Sequence[StepMetrics]) -> Iterable[dict[str, Any]]:
    for step in steps:
        values = {"StepLoss": step.loss, "LearningRate": step.learning_rate, "Throughput": step.throughput}
        for name, value in values.items():
            # CloudWatch refuses NaN and infinities; a diverged step shows as a gap there and in the log as it is.
            if math.isfinite(value):
                yield {
                    "MetricName": name,
                    "Dimensions": [{"Name": RUN_DIMENSION, "Value": run_id}],
                    "Timestamp": step.logged_at,
                    "Value": value,
                    "Unit": "Count/Second" if name == "Throughput" else "None",
                    "StorageResolution": 1,
                }
