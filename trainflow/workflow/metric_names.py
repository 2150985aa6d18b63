"""The metrics in CloudWatch: what the functions publish and the dashboard and the alarms read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NAMESPACE = "Trainflow"

DEPLOYMENT_DIMENSION = "Deployment"
"""Dimension of every metric, with one of the next two: keeps two deployments in one account apart."""

RUN_DIMENSION = "RunId"
"""Dimension of the metrics of one run."""

CLUSTER_DIMENSION = "ClusterName"
"""Dimension of the metrics over all runs of one cluster: alarms watch these, whatever the runs' names."""


class RunMetric(StrEnum):
    """Metrics of a run; those of the training have one datapoint a logged step."""

    STEP_LOSS = "StepLoss"
    LEARNING_RATE = "LearningRate"
    THROUGHPUT = "Throughput"
    """Sequences, or samples where the program counts those, per second over all ranks."""
    TOKENS_PER_SECOND = "TokensPerSecond"
    """Tokens per second over all ranks; published for programs that report it."""
    MODEL_FLOPS_UTILIZATION = "ModelFlopsUtilization"
    """Percent of the devices' peak; published for programs that report it, on devices whose peak is known."""
    GRADIENT_NORM = "GradientNorm"
    """2-norm of the gradients before clipping; published for programs that report it."""
    DATA_WAIT = "DataWait"
    """Percent of the time that rank 0 waited for samples; published for programs that report it."""
    STAGED_BYTES = "StagedBytes"
    """Bytes of the data set's source that are staged, one datapoint a poll while it is being staged."""
    STAGING_BYTES_PER_SECOND = "StagingBytesPerSecond"
    STAGING_PROGRESS = "StagingProgress"
    """Percent of the source; published for sources whose size is known."""


@dataclass(frozen=True)
class PublishedFigure:
    """A figure of a step as a metric."""

    name: str
    """Name of the figure (`observed.step.Step.figure`)."""
    metric: RunMetric
    unit: str
    """CloudWatch's name of the unit (API reference, MetricDatum)."""


STEP_FIGURES = (
    PublishedFigure("loss", RunMetric.STEP_LOSS, "None"),
    PublishedFigure("learning_rate", RunMetric.LEARNING_RATE, "None"),
    PublishedFigure("throughput", RunMetric.THROUGHPUT, "Count/Second"),
    PublishedFigure("tokens_per_second", RunMetric.TOKENS_PER_SECOND, "Count/Second"),
    PublishedFigure("mfu_percent", RunMetric.MODEL_FLOPS_UTILIZATION, "Percent"),
    PublishedFigure("grad_norm", RunMetric.GRADIENT_NORM, "None"),
    PublishedFigure("data_wait_percent", RunMetric.DATA_WAIT, "Percent"),
)
"""Figures of each step that are published, as far as the program reports them.

One more row is one more metric of every run, which CloudWatch bills by the month.
"""


class ClusterMetric(StrEnum):
    """Metrics of a cluster, over all of its runs."""

    SECONDS_SINCE_STEP = "SecondsSinceStep"
    """Age of the newest step, one datapoint a poll and run; alarms take the maximum."""
    NON_FINITE_LOSS = "NonFiniteLoss"
    """Steps whose loss was NaN or infinite; 0 is published too, so that the alarm has data."""
    THROUGHPUT_OVER_FLOOR = "ThroughputOverFloor"
    """Throughput of the newest step over `limits.min_throughput`, of runs that set one; below 1 is too slow."""
    NODES_UP = "NodesUp"
    """Training nodes that cost money, joined or not."""
    NODES_WITHOUT_RUN = "NodesWithoutRun"
    """Training nodes that cost money and that no run claims."""
    PODS_RUNNING = "PodsRunning"
    PODS_PENDING = "PodsPending"
    ESTIMATED_USD = "EstimatedUsd"
    """Estimated cost of the nodes since the last survey, at on-demand prices; the sum over a day is the day's bill. It
    is not published while the price of any running node is unknown."""
