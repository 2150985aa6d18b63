"""The dashboard, read from top to bottom: is it fine and what does it cost; runs; nodes; storage; plumbing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from stacks.observability import metrics
from stacks.observability.alarm_definitions import FULL_PERCENT, Definition
from stacks.observability.alarms import COMPOSITE, Alarms
from stacks.observability.runbooks import link
from trainflow.configuration.deployment import Configuration
from trainflow.workflow.metric_names import RUN_DIMENSION, ClusterMetric, RunMetric

if TYPE_CHECKING:
    from stacks.storage.stack import SharedFileSystem

WIDTH = 24
"""Columns of a dashboard (CloudWatch)."""

HALF, THIRD, QUARTER = WIDTH // 2, WIDTH // 3, WIDTH // 4
HEIGHT = 6

ANY_RUN = "no-run-chosen"
"""Stands in the widgets of one run until the dashboard puts a run's name there."""

FIVE_MINUTES = cdk.Duration.minutes(5)
PERCENT = cloudwatch.YAxisProps(min=0, max=100, label="percent", show_units=False)
FROM_ZERO = cloudwatch.YAxisProps(min=0, show_units=False)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Resources that the dashboard shows in addition to the metrics of runs and cluster."""

    training: sfn.IStateMachine
    functions: Mapping[str, lambda_.IFunction]
    dead_letter_queues: Mapping[str, sqs.IQueue]
    shared: SharedFileSystem | None
    alarms: Alarms


class Dashboard(Construct):
    """One dashboard for a deployment."""

    def __init__(self, scope: Construct, construct_id: str, *, configuration: Configuration, shown: Shown) -> None:
        super().__init__(scope, construct_id)
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=configuration.name,
            default_interval=cdk.Duration.hours(12),
            # Adapted periods would turn the day's bill and the file system's size, both sums, into other numbers.
            period_override=cloudwatch.PeriodOverride.INHERIT,
            variables=[_run_choice(configuration)],
            widgets=rows(configuration, shown),
        )


def rows(configuration: Configuration, shown: Shown) -> list[list[cloudwatch.IWidget]]:
    """All widgets, a list a row."""
    found: list[list[cloudwatch.IWidget]] = [
        *_overview(configuration, shown),
        [_heading("Runs", "All runs of the last two weeks, then the one that is chosen above.")],
        *_runs(configuration),
        [_heading("Nodes", "Training nodes as SurveyFleet counts them; NeuronCores as Container Insights sees them.")],
        *_nodes(configuration),
    ]
    if shown.shared is not None:
        found += [[_heading("Storage", "FSx for Lustre, shared by all pods.")], _storage(shown.shared)]
    return [*found, [_heading("Plumbing", "State machine, functions and queues.")], *_plumbing(shown)]


def _run_choice(configuration: Configuration) -> cloudwatch.IVariable:
    return cloudwatch.DashboardVariable(
        id="run",
        type=cloudwatch.VariableType.PROPERTY,
        value=RUN_DIMENSION,
        label="Run",
        input_type=cloudwatch.VariableInputType.SELECT,
        values=cloudwatch.Values.from_search(
            metrics.runs_of(RunMetric.STEP_LOSS, deployment=configuration), RUN_DIMENSION
        ),
        default_value=cloudwatch.DefaultValue.FIRST,
        visible=True,
    )


def _overview(configuration: Configuration, shown: Shown) -> list[list[cloudwatch.IWidget]]:
    spent = {"today (UTC)": metrics.DAY, "last hour": cdk.Duration.hours(1)}
    usd = [
        metrics.of_cluster(
            ClusterMetric.ESTIMATED_USD, deployment=configuration, statistic="Sum", period=period, label=label
        )
        for label, period in spent.items()
    ]
    now = [
        _count(ClusterMetric.NODES_UP, configuration, "nodes up"),
        _count(ClusterMetric.PODS_RUNNING, configuration, "pods running"),
    ]
    alarms = cloudwatch.AlarmStatusWidget(
        title="Is it fine?",
        alarms=[shown.alarms.composite, *shown.alarms.by_name.values()],
        width=HALF,
        height=HEIGHT,
    )
    # Begins two days back: the sum of today carries midnight as its time, which most ranges leave out.
    cost = _numbers("Estimated USD, on demand", usd, start="-P2D")
    runbooks = _runbooks(configuration, shown.alarms.definitions)
    return [
        [alarms, cost, _numbers("Now", now)],
        [cloudwatch.TextWidget(markdown=runbooks, width=WIDTH, height=2)],
    ]


def _numbers(
    title: str, shown: Sequence[cloudwatch.IMetric], *, start: str | None = None
) -> cloudwatch.SingleValueWidget:
    return cloudwatch.SingleValueWidget(title=title, metrics=list(shown), width=QUARTER, height=HEIGHT, start=start)


def _runbooks(configuration: Configuration, definitions: Sequence[Definition]) -> str:
    anchors = dict.fromkeys([COMPOSITE, *(definition.anchor for definition in definitions)])
    return "**Runbooks** " + " · ".join(
        f"[{anchor.replace('-', ' ')}]({link(configuration, anchor)})" for anchor in anchors
    )


def _heading(title: str, text: str) -> cloudwatch.TextWidget:
    return cloudwatch.TextWidget(markdown=f"## {title}\n{text}", width=WIDTH, height=2)


def _graph(
    title: str,
    left: Sequence[cloudwatch.IMetric],
    *,
    width: int = HALF,
    axis: cloudwatch.YAxisProps | None = None,
    right: Sequence[cloudwatch.IMetric] = (),
    line: cloudwatch.HorizontalAnnotation | None = None,
    stacked: bool = False,
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        right=list(right),
        left_y_axis=axis or FROM_ZERO,
        left_annotations=[line] if line else [],
        stacked=stacked,
        width=width,
        height=HEIGHT,
    )


def _runs(configuration: Configuration) -> list[list[cloudwatch.IWidget]]:
    loose = cloudwatch.YAxisProps(show_units=False)
    every = {
        RunMetric.STEP_LOSS: "Loss",
        RunMetric.THROUGHPUT: "Throughput, sequences or samples/s",
        RunMetric.TOKENS_PER_SECOND: "Tokens/s",
        RunMetric.MODEL_FLOPS_UTILIZATION: "MFU, % of peak",
    }
    chosen = {metric: _chosen(configuration, metric, label) for metric, label in every.items()}
    staging = {
        RunMetric.STAGING_PROGRESS: ("% of the data set", PERCENT),
        RunMetric.STAGED_BYTES: ("bytes", FROM_ZERO),
        RunMetric.STAGING_BYTES_PER_SECOND: ("bytes/s", FROM_ZERO),
    }
    return [
        [
            _graph(f"{title}, all runs", [metrics.of_every_run(metric, deployment=configuration)], width=QUARTER)
            for metric, title in every.items()
        ],
        [
            _graph(
                "Chosen run: loss and learning rate",
                [chosen[RunMetric.STEP_LOSS]],
                right=[_chosen(configuration, RunMetric.LEARNING_RATE, "Learning rate")],
                axis=loose,
                width=HALF,
            ),
            _graph(
                "Chosen run: speed",
                [chosen[RunMetric.THROUGHPUT]],
                right=[chosen[RunMetric.TOKENS_PER_SECOND]],
                width=QUARTER,
            ),
            _graph("Chosen run: MFU", [chosen[RunMetric.MODEL_FLOPS_UTILIZATION]], axis=PERCENT, width=QUARTER),
        ],
        [
            _graph(title, [_chosen(configuration, metric, label)], axis=axis)
            for metric, title, label, axis in (
                (RunMetric.GRADIENT_NORM, "Chosen run: gradient norm before clipping", "Gradient norm", FROM_ZERO),
                (RunMetric.DATA_WAIT, "Chosen run: wait for samples, % of the time", "Wait for samples, %", PERCENT),
            )
        ],
        [
            _graph(
                f"Staging, {title}, all runs",
                [metrics.of_every_run(metric, deployment=configuration)],
                axis=axis,
                width=THIRD,
            )
            for metric, (title, axis) in staging.items()
        ],
    ]


def _chosen(configuration: Configuration, metric: RunMetric, label: str) -> cloudwatch.Metric:
    return metrics.of_chosen_run(metric, deployment=configuration, placeholder=ANY_RUN, label=label)


def _nodes(configuration: Configuration) -> list[list[cloudwatch.IWidget]]:
    up = [
        _count(ClusterMetric.NODES_UP, configuration, "up"),
        _count(ClusterMetric.NODES_WITHOUT_RUN, configuration, "without a run"),
    ]
    pods = [
        _count(ClusterMetric.PODS_RUNNING, configuration, "running"),
        _count(ClusterMetric.PODS_PENDING, configuration, "pending"),
    ]
    cores = metrics.of_every_node("node_neuroncore_utilization", cluster_name=configuration.cluster_name)
    memory = metrics.of_every_node(
        "node_neurondevice_runtime_memory_used_bytes", cluster_name=configuration.cluster_name
    )
    return [
        [
            _graph("Nodes", up, width=QUARTER),
            _graph("Pods", pods, width=QUARTER),
            _graph("NeuronCore utilisation by node, %", [cores], axis=PERCENT, width=QUARTER),
            _graph("Neuron device memory by node, bytes", [memory], width=QUARTER),
        ]
    ]


def _count(metric: ClusterMetric, configuration: Configuration, label: str) -> cloudwatch.Metric:
    return metrics.of_cluster(metric, deployment=configuration, statistic="Maximum", label=label)


def _storage(shared: SharedFileSystem) -> list[cloudwatch.IWidget]:
    full = cloudwatch.HorizontalAnnotation(value=FULL_PERCENT, label="alarm")
    return [
        _graph("Throughput, bytes/s", metrics.file_system_throughput(shared.file_system_id), width=THIRD),
        _graph(
            "Used, %",
            [metrics.file_system_used(shared.file_system_id, size_gib=shared.size_gib)],
            axis=PERCENT,
            line=full,
            width=THIRD,
        ),
        _graph("Fullest storage target, bytes", [metrics.fullest_target_free(shared.file_system_id)], width=THIRD),
    ]


def _plumbing(shown: Shown) -> list[list[cloudwatch.IWidget]]:
    errors: list[cloudwatch.IMetric] = []
    durations: list[cloudwatch.IMetric] = []
    for name, function in shown.functions.items():
        errors.append(function.metric_errors(statistic="Sum", period=FIVE_MINUTES, label=name))
        durations.append(function.metric_duration(statistic="p95", period=FIVE_MINUTES, label=name))
    letters = [
        queue.metric_approximate_number_of_messages_visible(statistic="Maximum", period=FIVE_MINUTES, label=name)
        for name, queue in shown.dead_letter_queues.items()
    ]
    return [
        [
            _graph("Executions by result", _executions(shown.training), stacked=True),
            _graph("Dead letters", letters),
        ],
        [
            _graph("Lambda errors", errors, stacked=True),
            _graph("Lambda duration, p95 in ms", durations),
        ],
    ]


def _executions(training: sfn.IStateMachine) -> list[cloudwatch.IMetric]:
    results = {
        "succeeded": training.metric_succeeded,
        "failed": training.metric_failed,
        "timed out": training.metric_timed_out,
        "aborted": training.metric_aborted,
    }
    return [result(statistic="Sum", period=FIVE_MINUTES, label=label) for label, result in results.items()]
