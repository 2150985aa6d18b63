"""The metrics in CloudWatch: what the functions publish and the dashboard and the alarms read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NAMESPACE = "Trainflow"

DEPLOYMENT_DIMENSION = "Deployment"
"""Of every metric, beside one of the next two: two deployments in one account do not count each other's."""

RUN_DIMENSION = "RunId"
"""Of the metrics of one run."""

CLUSTER_DIMENSION = "ClusterName"
"""Of the metrics of everything that runs in one cluster: alarms watch these, whatever the runs are called."""


class RunMetric(StrEnum):
    """By run; those of the training have one datapoint a logged step."""

    STEP_LOSS = "StepLoss"
    LEARNING_RATE = "LearningRate"
    THROUGHPUT = "Throughput"
    """Sequences per second over all ranks."""
    TOKENS_PER_SECOND = "TokensPerSecond"
    """Over all ranks; of programs that report it."""
    MODEL_FLOPS_UTILIZATION = "ModelFlopsUtilization"
    """In percent of the devices' peak; of programs that report it on devices whose peak is known."""
    GRADIENT_NORM = "GradientNorm"
    """2-norm of the gradients before clipping; of programs that report it."""
    DATA_WAIT = "DataWait"
    """Percent of the time in which rank 0 waited for samples; of programs that report it."""
    STAGED_BYTES = "StagedBytes"
    """Of the data set's source, one datapoint a look while it is being staged."""
    STAGING_BYTES_PER_SECOND = "StagingBytesPerSecond"
    STAGING_PROGRESS = "StagingProgress"
    """In percent; of sources whose size is known."""


@dataclass(frozen=True)
class PublishedField:
    """One field of what rank 0 says of a step, as a metric."""

    field: str
    metric: RunMetric
    unit: str
    """As CloudWatch calls it (API reference, MetricDatum)."""


STEP_FIELDS = (
    PublishedField("loss", RunMetric.STEP_LOSS, "None"),
    PublishedField("learning_rate", RunMetric.LEARNING_RATE, "None"),
    PublishedField("throughput", RunMetric.THROUGHPUT, "Count/Second"),
)
"""What is published of each metrics line (`StepMetrics`)."""

REPORT_FIELDS = (
    PublishedField("tokens_per_second", RunMetric.TOKENS_PER_SECOND, "Count/Second"),
    PublishedField("mfu_percent", RunMetric.MODEL_FLOPS_UTILIZATION, "Percent"),
    PublishedField("grad_norm", RunMetric.GRADIENT_NORM, "None"),
    PublishedField("data_wait_percent", RunMetric.DATA_WAIT, "Percent"),
)
"""What is published of each step's report (`StepReport`), as far as the program knows it.

One more row is one more metric of every run, which CloudWatch bills by the month.
"""


class ClusterMetric(StrEnum):
    """By cluster, over all of its runs."""

    SECONDS_SINCE_STEP = "SecondsSinceStep"
    """Age of the newest step, one datapoint a poll and run; alarms take the maximum."""
    NON_FINITE_LOSS = "NonFiniteLoss"
    """Steps whose loss was NaN or infinite; 0 is published too, so that the alarm has data."""
    THROUGHPUT_OVER_FLOOR = "ThroughputOverFloor"
    """Throughput of the newest step over `limits.min_throughput`, of runs that set one; below 1 is too slow."""
    NODES_UP = "NodesUp"
    """Training nodes that cost money, joined or not."""
    NODES_WITHOUT_RUN = "NodesWithoutRun"
    """Of these, those that no run claims."""
    PODS_RUNNING = "PodsRunning"
    PODS_PENDING = "PodsPending"
    ESTIMATED_USD = "EstimatedUsd"
    """What the nodes cost since the last survey, at on-demand prices; the sum over a day is the day's bill. It is not
    published while a node is up whose price is not known."""
