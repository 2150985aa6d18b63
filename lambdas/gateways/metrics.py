"""Amazon CloudWatch: publishes data points, and reads how busy nodes were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from botocore.exceptions import ClientError

from lambdas.gateways.aws import client, translated
from trainflow.container_insights import read_mean_utilization
from trainflow.record.placement import Placement
from trainflow.workflow.metric_datum import Datum
from trainflow.workflow.metric_names import DEPLOYMENT_DIMENSION, NAMESPACE
from trainflow.workflow.run_record import NodesBusy

MAX_DATA_PER_CALL = 1000
"""Quota of PutMetricData."""


REFUSED = frozenset({"InvalidParameterCombination", "InvalidParameterValue", "MissingParameter", "ValidationError"})
"""Codes of errors about the data of a call: the same data would be refused again."""


def publish(data: Iterable[Datum], *, deployment: str) -> int:
    """Publish the data of a deployment in as few calls as possible.

    CloudWatch refuses NaN and infinities: a diverged step is a gap there, and appears unchanged in the log.

    Returns:
        Number of data points in calls that CloudWatch has refused for their data.
    """
    refused = 0
    finite = [_as_sent(datum, deployment) for datum in data if datum.is_number]
    for chunk in _chunks(finite):
        try:
            with translated("cloudwatch:PutMetricData"):
                client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=chunk)
        except ClientError as error:
            if error.response["Error"]["Code"] not in REFUSED:
                raise
            refused += len(chunk)
    return refused


def nodes_busy(cluster: str, placement: Placement) -> NodesBusy | None:
    """Utilization of a training's nodes, as far as CloudWatch shows it by now."""
    with translated("cloudwatch:GetMetricData"):
        return read_mean_utilization(
            client("cloudwatch"),
            cluster=cluster,
            nodes=placement.nodes,
            start=placement.started_at,
            end=placement.ended_at,
        )


def _chunks(data: Sequence[dict[str, Any]]) -> Iterable[Sequence[dict[str, Any]]]:
    return (data[start : start + MAX_DATA_PER_CALL] for start in range(0, len(data), MAX_DATA_PER_CALL))


def _as_sent(datum: Datum, deployment: str) -> dict[str, Any]:
    return {
        "MetricName": datum.metric,
        # Both in one set: CloudWatch bills a metric for each set, so this costs nothing more.
        "Dimensions": [
            {"Name": DEPLOYMENT_DIMENSION, "Value": deployment},
            {"Name": datum.dimension, "Value": datum.of},
        ],
        "Timestamp": datum.at,
        "Value": datum.value,
        "Unit": datum.unit,
        "StorageResolution": 1 if datum.every_second else 60,
    }
