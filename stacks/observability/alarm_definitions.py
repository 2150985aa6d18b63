"""The definitions of all alarms: what each one watches, what it means, and what to do first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

from stacks.observability import metrics
from trainflow.configuration.deployment import Configuration
from trainflow.deployment.address import container_log
from trainflow.workflow.metric_names import ClusterMetric

if TYPE_CHECKING:
    from stacks.storage.stack import SharedFileSystem

ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD

FULL_PERCENT = 85
"""Lustre slows down as its targets fill, and writes fail when one is full; this leaves time to act."""

SLOW_PERIODS = 3
"""Periods of five minutes each: a checkpoint or an evaluation slows down one period, a faulty node all of them."""

REAPER_SLACK_MINUTES = 15
"""Time of three surveys: scaling down takes minutes, and one survey may fail without an alarm."""

SURVEYS_MISSED = 3

UNSENT = 3
"""Errors of Notify within five minutes: its state tries it up to eleven times, and one error is mended by the next try.
"""

LONGEST_EVALUATION_MINUTES = 24 * 60
"""Period times periods for periods below an hour (quota of PutMetricAlarm)."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One alarm."""

    name: str
    """Name of the alarm, after the deployment's name."""
    meaning: str
    first: str
    """First action of the operator."""
    metric: cloudwatch.IMetric
    threshold: float = 1
    operator: cloudwatch.ComparisonOperator = AT_LEAST
    periods: int = 1
    breaching: int | None = None
    """Number of periods that have to be bad; None: all of them."""
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING
    says_when_over: bool = True
    """Whether the end of the alarm is reported; not for events, since a later period without a failure says nothing
    about the failed run."""
    mails: bool = True
    """Send mail for this alarm. False for run-ended alarms: the run sends its own mail."""
    needs_a_person: bool = False
    """Whether a run stands still or is lost, or nodes cost money, until a person acts."""
    section: str | None = None
    """Heading of the runbook where several alarms share one."""

    @property
    def anchor(self) -> str:
        """Heading of the runbook's section."""
        return self.section or self.name


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Resources that the alarms watch."""

    training: sfn.IStateMachine
    watch_job: sfn.IStateMachine
    notify: lambda_.IFunction
    """The function that sends the message of a run's end."""
    dead_letter_queues: Mapping[str, sqs.IQueue]
    rules: Mapping[str, str]
    """Name of each rule that starts something, by its key."""
    shared: SharedFileSystem | None


def definitions(configuration: Configuration, watched: Watched) -> list[Definition]:
    """Every alarm of a deployment."""
    found = [
        *_executions(watched),
        *_training(configuration),
        *_dead_letters(watched.dead_letter_queues),
        _lost_events(configuration, watched.rules),
        *_fleet(configuration),
    ]
    if configuration.cluster.pod_logs == "cloudwatch":
        found.append(_pod_logs(configuration))
    if watched.shared is not None:
        found.append(_storage(watched.shared))
    return found


def _executions(watched: Watched) -> Iterator[Definition]:
    period = cdk.Duration.minutes(5)
    yield Definition(
        name="execution-failed",
        meaning="A training run has ended as FAILED.",
        first="read the failure's name and cure in the message that the run sent to this topic.",
        metric=watched.training.metric_failed(statistic="Sum", period=period),
        says_when_over=False,
        mails=False,
        needs_a_person=True,
    )
    yield Definition(
        name="execution-timed-out",
        meaning="The execution of a training run has reached its time limit.",
        first="see that the clean-up has removed the run's jobs and nodes.",
        metric=watched.training.metric_timed_out(statistic="Sum", period=period),
        says_when_over=False,
        mails=False,
        needs_a_person=True,
    )
    yield Definition(
        name="message-not-sent",
        meaning="The message about the end of a run could not be sent several times in a row.",
        first="read how the newest runs ended, then the log of Notify.",
        metric=watched.notify.metric_errors(statistic="Sum", period=period),
        threshold=UNSENT,
        says_when_over=False,
        needs_a_person=True,
    )
    yield Definition(
        name="execution-throttled",
        meaning="Step Functions slows the workflow's state transitions down, so that runs are watched late.",
        first="count the running executions; something may be starting them in a loop.",
        metric=cloudwatch.MathExpression(
            expression="training + watching",
            using_metrics={
                "training": watched.training.metric_throttled(statistic="Sum", period=period),
                "watching": watched.watch_job.metric_throttled(statistic="Sum", period=period),
            },
            label="throttled",
            period=period,
        ),
    )


def _training(configuration: Configuration) -> Iterator[Definition]:
    minutes = configuration.alarms.stalled_minutes
    yield Definition(
        name="training-stalled",
        meaning=f"A run has logged no step for {minutes} minutes, while its nodes cost money.",
        first="read the last lines of rank 0.",
        metric=metrics.of_cluster(ClusterMetric.SECONDS_SINCE_STEP, deployment=configuration, statistic="Maximum"),
        threshold=minutes * 60,
        operator=ABOVE,
        # A spec may have its job polled every five minutes only, which leaves some periods empty.
        periods=2,
        breaching=1,
        needs_a_person=True,
    )
    yield Definition(
        name="loss-not-finite",
        meaning="A run's loss is NaN or infinite: what it computes from here on is worthless.",
        first="stop the run, unless its own script skips such steps.",
        metric=metrics.of_cluster(ClusterMetric.NON_FINITE_LOSS, deployment=configuration, statistic="Sum"),
        needs_a_person=True,
    )
    yield Definition(
        name="throughput-below-floor",
        meaning=f"A run has been slower than its spec's limits.min_throughput for {SLOW_PERIODS * 5} minutes.",
        first="compare the nodes' NeuronCore utilisation on the dashboard; one slow node slows all.",
        metric=metrics.of_cluster(ClusterMetric.THROUGHPUT_OVER_FLOOR, deployment=configuration, statistic="Minimum"),
        operator=BELOW,
        periods=SLOW_PERIODS + 2,
        breaching=SLOW_PERIODS,
        needs_a_person=True,
    )


def _dead_letters(queues: Mapping[str, sqs.IQueue]) -> Iterator[Definition]:
    for key, queue in queues.items():
        yield Definition(
            name=f"dead-letters-{_kebab(key)}",
            section="dead-letters",
            meaning=f"An event could not be handled after all retries and lies in the dead-letter queue '{key}'.",
            first="read the message, then the log of the function that gave it up.",
            metric=_messages_in(queue),
            needs_a_person=True,
        )


def _messages_in(queue: sqs.IQueue) -> cloudwatch.MathExpression:
    """All messages: one that a function fails to report again and again is hidden most of the time."""
    period = metrics.SURVEY
    return cloudwatch.MathExpression(
        expression="waiting + hidden",
        using_metrics={
            "waiting": queue.metric_approximate_number_of_messages_visible(statistic="Maximum", period=period),
            "hidden": queue.metric_approximate_number_of_messages_not_visible(statistic="Maximum", period=period),
        },
        label="messages",
        period=period,
    )


def _lost_events(configuration: Configuration, rules: Mapping[str, str]) -> Definition:
    """Dead-letter queues take what their targets refuse, but share their key, which may refuse both."""
    period = metrics.SURVEY
    lost = {
        key[0].lower() + key[1:]: cloudwatch.Metric(
            namespace="AWS/Events",
            metric_name="InvocationsFailedToBeSentToDlq",
            dimensions_map={"RuleName": rule},
            statistic="Sum",
            period=period,
        )
        for key, rule in rules.items()
    }
    lost["schedules"] = cloudwatch.Metric(
        namespace="AWS/Scheduler",
        metric_name="InvocationsFailedToBeSentToDeadLetterCount",
        dimensions_map={"ScheduleGroup": configuration.name},
        statistic="Sum",
        period=period,
    )
    return Definition(
        name="events-lost",
        section="dead-letters",
        meaning="An upload, a run's end or a schedule reached neither its target nor a dead-letter queue: it is lost.",
        first="see which rule or schedule it was, and whether the queues' policies and their key admit it.",
        metric=cloudwatch.MathExpression(
            # A metric has data only in periods with a failure.
            expression=" + ".join(f"FILL({name}, 0)" for name in lost),
            using_metrics=lost,
            label="events lost",
            period=period,
        ),
        says_when_over=False,
        needs_a_person=True,
    )


def _fleet(configuration: Configuration) -> Iterator[Definition]:
    budget = configuration.alarms.daily_budget_usd
    minutes = configuration.capacity.idle_minutes + REAPER_SLACK_MINUTES
    period = metrics.SURVEY if minutes <= LONGEST_EVALUATION_MINUTES else cdk.Duration.hours(1)
    yield Definition(
        name="nodes-without-run",
        meaning=f"Nodes that no run claims have been up for {minutes} minutes: the idle-node reaper has failed, or "
        "another run holds their node group.",
        first="see whether a run uses the node group; if none does, scale it down by hand.",
        metric=metrics.of_cluster(
            ClusterMetric.NODES_WITHOUT_RUN, deployment=configuration, statistic="Minimum", period=period
        ),
        periods=math.ceil(minutes / period.to_minutes()),
        needs_a_person=True,
    )
    yield Definition(
        name="survey-missing",
        meaning="SurveyFleet has reported nothing, so idle nodes are not released and this dashboard is stale.",
        first="read the function's log.",
        metric=metrics.of_cluster(ClusterMetric.NODES_UP, deployment=configuration, statistic="SampleCount"),
        operator=BELOW,
        periods=SURVEYS_MISSED,
        missing=cloudwatch.TreatMissingData.BREACHING,
        needs_a_person=True,
    )
    yield Definition(
        name="daily-budget",
        meaning=f"Training nodes have cost more than {budget:g} USD within a day, estimated at on-demand prices.",
        first="see on the dashboard which nodes are up, and for which runs.",
        metric=metrics.of_cluster(
            ClusterMetric.ESTIMATED_USD, deployment=configuration, statistic="Sum", period=metrics.DAY
        ),
        threshold=budget,
        operator=ABOVE,
    )


def _pod_logs(configuration: Configuration) -> Definition:
    usd = configuration.alarms.pod_logs_usd_per_hour
    return Definition(
        name="pod-logs-expensive",
        meaning=f"What pods write has cost more than {usd:g} USD within an hour to send to CloudWatch Logs.",
        first="find the run that writes much.",
        metric=metrics.pod_logs_usd(container_log(configuration.cluster_name, "application")),
        threshold=usd,
        operator=ABOVE,
    )


def _storage(shared: SharedFileSystem) -> Definition:
    return Definition(
        name="storage-nearly-full",
        meaning=f"The shared file system is more than {FULL_PERCENT} % full; runs fail when they cannot write.",
        first="find what fills it: old runs below /runs, data sets below /data, compile caches.",
        metric=metrics.file_system_used(shared.file_system_id, size_gib=shared.size_gib),
        threshold=FULL_PERCENT,
        operator=ABOVE,
        periods=5,
    )


def _kebab(key: str) -> str:
    """Convert a name such as `RunRequests` to `run-requests`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", key).lower()
