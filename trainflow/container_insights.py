"""Utilization of a run's nodes, as Container Insights publishes it for the nodes of a cluster.

The add-on amazon-cloudwatch-observability publishes a value a minute for each node, and the twin does so for its own
(CloudWatch user guide, "Enhanced Container Insights (Classic) metric reference"). The client and the workflow read it
with the same functions, which leave boto3's errors as they are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import mean
from typing import TYPE_CHECKING

from trainflow.record.placement import MAX_NODES
from trainflow.workflow.run_record import NodesBusy

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch.client import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricTypeDef

NAMESPACE = "ContainerInsights"

DIMENSIONS = CLUSTER, INSTANCE, NODE = "ClusterName", "InstanceId", "NodeName"
"""Dimensions of a node's metrics. They are published with others, too."""

CPU_METRIC = "node_cpu_utilization"

METRICS = {
    "node_neuroncore_utilization": "NeuronCores",
    "node_gpu_utilization": "GPUs",
    CPU_METRIC: "CPUs",
}
"""Resource of each metric in percent; the first metric with values for the nodes is used."""

RECENT = timedelta(minutes=5)
"""Age of the oldest value that counts as present: CloudWatch shows them up to two minutes late."""

PERIOD_SECONDS = 60

MAX_VALUES = 500
"""Most values of each node that a mean is made of: an answer of CloudWatch has at most 100,800 in all."""


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """Utilization of nodes."""

    of: str
    """The measured resource: `NeuronCores`, `GPUs` or `CPUs`."""
    by_node: Mapping[str, float]
    """Per cent, the newest minute's mean; nodes without a value are left out."""


def read_utilization(
    cloudwatch: CloudWatchClient, *, cluster: str, nodes: Collection[str], now: datetime
) -> Utilization | None:
    """Present utilization of nodes; None if it is not published.

    Args:
        cloudwatch: boto3's client.
        cluster: Name of the EKS cluster.
        nodes: Names of its nodes.
        now: The present.
    """
    wanted = sorted(nodes)[:MAX_NODES]
    for name, of in METRICS.items():
        found = _metrics_by_node(cloudwatch, name, cluster, wanted)
        values = _newest(cloudwatch, found, now) if found else {}
        if values:
            return Utilization(of=of, by_node=values)
    return None


def read_mean_utilization(
    cloudwatch: CloudWatchClient, *, cluster: str, nodes: Collection[str], start: datetime, end: datetime
) -> NodesBusy | None:
    """Mean utilization of nodes in a time that has just ended; None if it was not published."""
    wanted = sorted(nodes)[:MAX_NODES]
    minutes = math.ceil((end - start).total_seconds() / PERIOD_SECONDS)
    period_seconds = PERIOD_SECONDS * max(1, math.ceil(minutes / MAX_VALUES))
    for name, of in METRICS.items():
        found = _metrics_by_node(cloudwatch, name, cluster, wanted)
        values = _values(cloudwatch, found, start, end, period_seconds) if found else {}
        means = {node: round(mean(of_node), 1) for node, of_node in values.items()}
        if means:
            return NodesBusy(of=of, by_node=means)
    return None


def _metrics_by_node(
    cloudwatch: CloudWatchClient, name: str, cluster: str, nodes: Collection[str]
) -> dict[str, MetricTypeDef]:
    """The metric of each node: its dimensions contain the instance's id, which the node's name lacks."""
    pages = cloudwatch.get_paginator("list_metrics").paginate(
        Namespace=NAMESPACE,
        MetricName=name,
        Dimensions=[{"Name": CLUSTER, "Value": cluster}, {"Name": NODE}],
        RecentlyActive="PT3H",
    )
    found: dict[str, MetricTypeDef] = {}
    for page in pages:
        for metric in page["Metrics"]:
            given = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
            if sorted(given) == sorted(DIMENSIONS) and given[NODE] in nodes:
                found[given[NODE]] = {"Namespace": NAMESPACE, "MetricName": name, "Dimensions": metric["Dimensions"]}
    return found


def _newest(cloudwatch: CloudWatchClient, metrics: Mapping[str, MetricTypeDef], now: datetime) -> dict[str, float]:
    values = _values(cloudwatch, metrics, now - RECENT, now, PERIOD_SECONDS)
    return {node: of_node[0] for node, of_node in values.items()}


def _values(
    cloudwatch: CloudWatchClient,
    metrics: Mapping[str, MetricTypeDef],
    start: datetime,
    end: datetime,
    period_seconds: int,
) -> dict[str, list[float]]:
    """The means of each node's periods, the newest first; nodes without one are left out."""
    names = list(metrics)
    answer = cloudwatch.get_metric_data(
        MetricDataQueries=[
            {
                "Id": f"n{place}",
                "MetricStat": {"Metric": metrics[name], "Period": period_seconds, "Stat": "Average"},
            }
            for place, name in enumerate(names)
        ],
        StartTime=start,
        EndTime=end,
        ScanBy="TimestampDescending",
    )
    found = {}
    for result in answer["MetricDataResults"]:
        if result["Values"]:
            newest_first = sorted(zip(result["Timestamps"], result["Values"], strict=True), reverse=True)
            found[names[int(result["Id"].removeprefix("n"))]] = [value for _, value in newest_first]
    return found
