"""Metrics of the dashboard and the alarms, each with its name and dimensions.

A name that is wrong by one letter shows an empty graph and an alarm that never rings, so each has its source:

* Trainflow: `trainflow.workflow.metric_names`, which the functions publish from.
* ContainerInsights: the metric reference of Enhanced Container Insights (Classic) in the CloudWatch user guide. The
  add-on amazon-cloudwatch-observability publishes these unless its configuration turns `containerInsights` off; the
  OpenTelemetry flavour has other names, is off by default, and can only be asked in PromQL.
* AWS/FSx: metrics and dimensions in the FSx for Lustre user guide. One datapoint a storage target and minute, so that
  `Sum` is the whole file system in periods of one minute and a multiple of it in longer ones.
* AWS/Logs: CloudWatch Logs user guide, "Monitoring with CloudWatch metrics". Bytes are counted uncompressed, as they
  are billed.
* AWS/States, AWS/Lambda, AWS/SQS: the constructs' own methods.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from trainflow.configuration.deployment import Configuration
from trainflow.workflow.metric_names import (
    CLUSTER_DIMENSION,
    DEPLOYMENT_DIMENSION,
    NAMESPACE,
    RUN_DIMENSION,
    ClusterMetric,
    RunMetric,
)

MINUTE = cdk.Duration.minutes(1)
HOUR = cdk.Duration.hours(1)
SURVEY = cdk.Duration.minutes(5)
"""Time between two polls of the cluster by SurveyFleet; shorter periods would have gaps."""
DAY = cdk.Duration.days(1)

FILE_SYSTEM_DIMENSION = "FileSystemId"
GIB = 1024**3

LOG_USD_PER_GB = 0.50
"""Amazon CloudWatch Logs, ingestion in the standard class (its price page, us-west-2, November 2026)."""


def of_cluster(
    metric: ClusterMetric,
    *,
    deployment: Configuration,
    statistic: str,
    period: cdk.Duration = SURVEY,
    label: str | None = None,
) -> cloudwatch.Metric:
    """A metric that the functions publish for one cluster over all its runs."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric.value,
        dimensions_map={DEPLOYMENT_DIMENSION: deployment.name, CLUSTER_DIMENSION: deployment.cluster_name},
        statistic=statistic,
        period=period,
        label=label,
    )


def of_every_run(metric: RunMetric, *, deployment: Configuration) -> cloudwatch.SearchExpression:
    """A line for each run of the last two weeks: names of runs are not known when this is deployed."""
    return _search(runs_of(metric, deployment=deployment), period=MINUTE)


def runs_of(metric: RunMetric, *, deployment: Configuration) -> str:
    """The terms of a search for a metric of all runs of a deployment."""
    schema = f"{{{NAMESPACE},{DEPLOYMENT_DIMENSION},{RUN_DIMENSION}}}"
    return f'{schema} MetricName="{metric.value}" {DEPLOYMENT_DIMENSION}="{deployment.name}"'


def of_chosen_run(metric: RunMetric, *, deployment: Configuration, placeholder: str, label: str) -> cloudwatch.Metric:
    """A metric of the run that is chosen at the top of the dashboard, which replaces `placeholder` by the run's
    name."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric.value,
        dimensions_map={DEPLOYMENT_DIMENSION: deployment.name, RUN_DIMENSION: placeholder},
        statistic="Average",
        period=MINUTE,
        label=label,
    )


def of_every_node(metric_name: str, *, cluster_name: str) -> cloudwatch.SearchExpression:
    """A line for each node that Container Insights sees."""
    schema = "{ContainerInsights,ClusterName,InstanceId,NodeName}"
    return _search(f'{schema} MetricName="{metric_name}" ClusterName="{cluster_name}"', period=MINUTE)


def file_system_throughput(file_system_id: str) -> list[cloudwatch.IMetric]:
    """Bytes a second that clients read and write."""
    return [
        cloudwatch.MathExpression(
            expression=f"{name} / PERIOD({name})",
            using_metrics={name: _file_system(metric_name, file_system_id, statistic="Sum")},
            label=label,
            period=MINUTE,
        )
        for name, metric_name, label in (("read", "DataReadBytes", "read"), ("written", "DataWriteBytes", "written"))
    ]


def file_system_used(file_system_id: str, *, size_gib: int) -> cloudwatch.MathExpression:
    """Percent of the bought size that is not free: a little above what `df` shows, which leaves out Lustre's own."""
    return cloudwatch.MathExpression(
        expression=f"100 * (1 - free / {size_gib * GIB})",
        using_metrics={"free": _file_system("FreeDataStorageCapacity", file_system_id, statistic="Sum")},
        label="used",
        period=MINUTE,
    )


def fullest_target_free(file_system_id: str) -> cloudwatch.Metric:
    """Bytes free on the fullest storage target: writes fail when one is full, whatever the others have left."""
    return _file_system("FreeDataStorageCapacity", file_system_id, statistic="Minimum", label="free on the fullest")


def pod_logs_usd(log_group: str) -> cloudwatch.MathExpression:
    """Cost of sending the log lines of pods for an hour, by the price of `LOG_USD_PER_GB`."""
    sent = cloudwatch.Metric(
        namespace="AWS/Logs",
        metric_name="IncomingBytes",
        dimensions_map={"LogGroupName": log_group},
        statistic="Sum",
        period=HOUR,
    )
    return cloudwatch.MathExpression(
        expression=f"sent / {10**9} * {LOG_USD_PER_GB}", using_metrics={"sent": sent}, label="USD", period=HOUR
    )


def _file_system(
    metric_name: str, file_system_id: str, *, statistic: str, label: str | None = None
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/FSx",
        metric_name=metric_name,
        dimensions_map={FILE_SYSTEM_DIMENSION: file_system_id},
        statistic=statistic,
        period=MINUTE,
        label=label,
    )


def _search(terms: str, *, period: cdk.Duration) -> cloudwatch.SearchExpression:
    seconds = int(period.to_seconds())
    return cloudwatch.SearchExpression(expression=f"SEARCH('{terms}', 'Average', {seconds})", period=period, label="")
