"""The dashboard shows what is published, and every alarm reaches a person who can act."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aws_cdk as cdk
import cdk_nag
import pytest
import yaml
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stacks.checks import findings
from stacks.observability.alarms import COMPOSITE
from stacks.observability.stack import ObservabilityStack
from tests.infrastructure.resource_schemas import resource_schema
from trainflow.configuration import chat
from trainflow.configuration.deployment import Configuration, ConfigurationError, load_configuration
from trainflow.deployment.functions import FUNCTIONS
from trainflow.spec.run_spec import Limits
from trainflow.workflow.metric_names import (
    CLUSTER_DIMENSION,
    DEPLOYMENT_DIMENSION,
    NAMESPACE,
    RUN_DIMENSION,
    ClusterMetric,
    RunMetric,
)

NEURON_METRICS = {"node_neuroncore_utilization", "node_neurondevice_runtime_memory_used_bytes"}
FILE_SYSTEM_METRICS = {"DataReadBytes", "DataWriteBytes", "FreeDataStorageCapacity"}
QUEUES = {"RunRequests": "run-requests", "Schedules": "schedules", "CleanUp": "clean-up"}
ENVIRONMENT = cdk.Environment(region="us-west-2")


def configuration(**changes: Any) -> Configuration:
    document: dict[str, Any] = {
        "version": 1,
        "name": "blue",
        "environment": "development",
        "region": "us-west-2",
        "network": {"zone_id": "usw2-az4", "second_zone_id": "usw2-az1"},
        "capacity": {"nodegroups": [{"instance_type": "c7i.4xlarge", "max_nodes": 2}]},
        "alarms": {"runbooks_url": "https://example.org/runbooks.md"},
    }
    return Configuration.model_validate(document | changes)


class Deployed:
    """The stack beside stand-ins for those that it watches."""

    def __init__(self, settings: Configuration, *, size_gib: int | None = 1200, dashboard: str = "blue") -> None:
        self.app = cdk.App()
        below = cdk.Stack(self.app, "Below", env=ENVIRONMENT)
        key = kms.Key(below, "Key")
        shared = SimpleNamespace(file_system_id="fs-01234567", size_gib=size_gib) if size_gib else None
        self.stack = ObservabilityStack(
            self.app,
            "Observability",
            configuration=settings,
            orchestration=SimpleNamespace(  # type: ignore[arg-type]
                key=key,
                topic=sns.Topic(below, "Topic", master_key=key, enforce_ssl=True),
                training=_machine(below, "Training"),
                watch_job=_machine(below, "WatchJob"),
                functions={function.name: _function(below, function.name) for function in FUNCTIONS[:-3]},
                account=below.account,
                format_arn=below.format_arn,
            ),
            triggers=SimpleNamespace(  # type: ignore[arg-type]
                dead_letter_queues={name: sqs.Queue(below, f"{name}DeadLetters") for name in QUEUES},
                rules={"Uploads": "Uploads-rule", "AbortedRuns": "AbortedRuns-rule"},
                functions={function.name: _function(below, function.name) for function in FUNCTIONS[-3:]},
            ),
            storage=SimpleNamespace(shared=shared),  # type: ignore[arg-type]
            env=ENVIRONMENT,
        )
        self.below = Template.from_stack(below).to_json()["Resources"]
        self.template = Template.from_stack(self.stack).to_json()
        self.alarms = {
            alarm["Properties"]["AlarmName"]: alarm["Properties"] for alarm in self.of_type("AWS::CloudWatch::Alarm")
        }
        (self.composite,) = [entry["Properties"] for entry in self.of_type("AWS::CloudWatch::CompositeAlarm")]
        bodies = {
            entry["Properties"]["DashboardName"]: entry["Properties"]["DashboardBody"]
            for entry in self.of_type("AWS::CloudWatch::Dashboard")
        }
        self.dashboard = json.loads(_joined(bodies[dashboard]))
        self.widgets: list[dict[str, Any]] = self.dashboard["widgets"]

    def of_type(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.template["Resources"].values() if entry["Type"] == name]

    def alarm(self, name: str) -> dict[str, Any]:
        return self.alarms[f"blue-{name}"]

    def titled(self, title: str) -> dict[str, Any]:
        (widget,) = [widget for widget in self.widgets if widget["properties"].get("title") == title]
        return widget

    def metrics(self) -> list[tuple[str, str, dict[str, str]]]:
        """Namespace, name and dimensions of every metric on the dashboard, in graphs and in searches."""
        found = []
        for widget in self.widgets:
            for entry in widget["properties"].get("metrics", []):
                if isinstance(entry[0], dict):
                    found += _searched(entry[0].get("expression", ""))
                else:
                    found.append(_listed([part for part in entry if isinstance(part, str)]))
        return found


def _machine(scope: cdk.Stack, name: str) -> sfn.StateMachine:
    return sfn.StateMachine(
        scope, name, definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(scope, f"In{name}"))
    )


def _function(scope: cdk.Stack, name: str) -> SimpleNamespace:
    code = lambda_.Code.from_inline("def handler(event, context): ...")
    function = lambda_.Function(scope, name, runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code)
    return SimpleNamespace(function=function)


def _joined(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "".join(part if isinstance(part, str) else "TOKEN" for part in value["Fn::Join"][1])


def _searched(expression: str) -> list[tuple[str, str, dict[str, str]]]:
    search = re.match(r"SEARCH\('\{([^}]+)\} (.*)', '\w+', \d+\)", expression)
    if search is None:
        return []
    namespace, *dimensions = search[1].split(",")
    given = dict(re.findall(r'(\w+)="([^"]*)"', search[2]))
    name = given.pop("MetricName")
    return [(namespace, name, {dimension: given.get(dimension, "*") for dimension in dimensions})]


def _listed(entry: list[str]) -> tuple[str, str, dict[str, str]]:
    namespace, name, *rest = entry
    return namespace, name, dict(zip(rest[::2], rest[1::2], strict=True))


@pytest.fixture(scope="module")
def deployed() -> Deployed:
    return Deployed(configuration())


# The dashboard


def test_no_widget_lies_on_another_or_outside_the_grid(deployed: Deployed) -> None:
    taken: set[tuple[int, int]] = set()
    for widget in deployed.widgets:
        columns = range(widget["x"], widget["x"] + widget["width"])
        cells = {(x, y) for x in columns for y in range(widget["y"], widget["y"] + widget["height"])}
        assert columns.stop <= 24, widget
        assert not taken & cells, widget
        taken |= cells
    width = 24
    assert len(taken) == width * (1 + max(y for _, y in taken)), "rows have gaps"


def test_every_metric_of_trainflow_is_one_that_the_functions_publish(deployed: Deployed) -> None:
    ours = [(name, dimensions) for namespace, name, dimensions in deployed.metrics() if namespace == NAMESPACE]
    for name, dimensions in ours:
        if name in set(ClusterMetric):
            assert dimensions == {DEPLOYMENT_DIMENSION: "blue", CLUSTER_DIMENSION: "blue"}
        else:
            assert RunMetric(name)
            assert set(dimensions) == {DEPLOYMENT_DIMENSION, RUN_DIMENSION}
            assert dimensions[DEPLOYMENT_DIMENSION] == "blue"
    assert {name for name, _ in ours} >= {metric.value for metric in RunMetric}


def test_neuron_metrics_are_those_of_the_cluster_by_node(deployed: Deployed) -> None:
    found = [(name, given) for namespace, name, given in deployed.metrics() if namespace == "ContainerInsights"]
    assert {name for name, _ in found} == NEURON_METRICS
    for _, dimensions in found:
        assert dimensions == {"ClusterName": "blue", "InstanceId": "*", "NodeName": "*"}


def test_file_system_metrics_are_summed_by_the_minute(deployed: Deployed) -> None:
    entries = [
        entry
        for widget in deployed.widgets
        for entry in widget["properties"].get("metrics", [])
        if entry[0] == "AWS/FSx"
    ]
    assert {entry[1] for entry in entries} == FILE_SYSTEM_METRICS
    for entry in entries:
        assert entry[2:4] == ["FileSystemId", "fs-01234567"]
        assert entry[4]["period"] == 60


def test_periods_stay_as_they_are_so_that_sums_stay_true(deployed: Deployed) -> None:
    assert deployed.dashboard["periodOverride"] == "inherit"
    (today, *_), *_ = [deployed.titled("Estimated USD, on demand")["properties"]["metrics"]]
    assert today[:2] == [NAMESPACE, ClusterMetric.ESTIMATED_USD]
    assert today[-1]["stat"] == "Sum"
    assert today[-1]["period"] == 24 * 60 * 60


def test_the_first_row_says_whether_it_is_fine_and_what_it_costs(deployed: Deployed) -> None:
    first = [widget["properties"].get("title") for widget in deployed.widgets if widget["y"] == 0]
    assert first == ["Is it fine?", "Estimated USD, on demand", "Now"]


def test_the_state_of_every_alarm_is_shown(deployed: Deployed) -> None:
    shown = deployed.titled("Is it fine?")["properties"]["alarms"]
    assert len(shown) == len(deployed.alarms) + 1


def test_sections_are_read_from_runs_down_to_the_plumbing(deployed: Deployed) -> None:
    texts = [widget["properties"]["markdown"] for widget in deployed.widgets if widget["type"] == "text"]
    headings = [text.splitlines()[0] for text in texts if text.startswith("## ")]
    assert headings == ["## Runs", "## Nodes", "## Storage", "## Plumbing"]


def test_a_run_is_chosen_from_those_that_have_published(deployed: Deployed) -> None:
    (variable,) = deployed.dashboard["variables"]
    assert variable["type"] == "property"
    assert variable["property"] == RUN_DIMENSION
    assert variable["search"] == (
        f'{{{NAMESPACE},{DEPLOYMENT_DIMENSION},{RUN_DIMENSION}}} MetricName="{RunMetric.STEP_LOSS}" '
        f'{DEPLOYMENT_DIMENSION}="blue"'
    )
    assert variable["populateFrom"] == RUN_DIMENSION


def test_every_function_shows_its_errors_and_durations(deployed: Deployed) -> None:
    for title in ("Lambda errors", "Lambda duration, p95 in ms"):
        labels = {entry[-1]["label"] for entry in deployed.titled(title)["properties"]["metrics"]}
        assert labels == {function.name for function in FUNCTIONS}
    slow = deployed.titled("Lambda duration, p95 in ms")["properties"]["metrics"]
    assert {entry[-1]["stat"] for entry in slow} == {"p95"}


def test_executions_are_shown_by_result(deployed: Deployed) -> None:
    entries = deployed.titled("Executions by result")["properties"]["metrics"]
    assert {entry[1] for entry in entries} == {
        "ExecutionsSucceeded",
        "ExecutionsFailed",
        "ExecutionsTimedOut",
        "ExecutionsAborted",
    }


def test_every_runbook_can_be_opened_from_the_dashboard(deployed: Deployed) -> None:
    (runbooks,) = [
        widget["properties"]["markdown"]
        for widget in deployed.widgets
        if widget["properties"].get("markdown", "").startswith("**Runbooks**")
    ]
    for alarm in [*deployed.alarms.values(), deployed.composite]:
        link = alarm["AlarmDescription"].split()[-1]
        assert f"({link})" in runbooks


def test_without_a_page_of_one_s_own_every_alarm_leads_to_a_dashboard_that_holds_its_runbook() -> None:
    bare = Deployed(configuration(alarms={}), dashboard="blue")
    runbooks = Deployed(configuration(alarms={}), dashboard="blue-runbooks").widgets
    headings = {widget["properties"]["markdown"].split("\n")[0].removeprefix("## ") for widget in runbooks}
    where = (
        "https://us-west-2.console.aws.amazon.com/cloudwatch/home?region=us-west-2#dashboards/dashboard/blue-runbooks"
    )
    for alarm in [*bare.alarms.values(), bare.composite]:
        found = re.fullmatch(r'.* Runbook "([^"]+)": (\S+)', alarm["AlarmDescription"])
        assert found, alarm["AlarmDescription"]
        assert found[1] in headings
        assert found[2] == where
        assert len(alarm["AlarmDescription"]) <= 1024
    for widget in runbooks:
        links = re.findall(r"\]\(([^)]+)\)", widget["properties"]["markdown"])
        assert all(link.startswith("https://") for link in links), links


@pytest.mark.parametrize("url", ["docs/runbooks.md", "ftp://example.org/x", "https://"])
def test_a_page_of_runbooks_that_no_mail_can_open_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="runbooks_url"):
        configuration(alarms={"runbooks_url": url})


# The alarms


ENDS = {"blue-execution-failed", "blue-execution-timed-out"}
"""Alarms about events of which the run itself sends a message."""


def test_one_mail_is_sent_of_an_event(deployed: Deployed) -> None:
    """The alarm of a failed run does not repeat the run's own message, and the composite calls the pager alone."""
    for name, alarm in deployed.alarms.items():
        actions = alarm.get("AlarmActions", [])
        assert len(actions) == (0 if name in ENDS else 1), name
        assert all("Topic" in json.dumps(action) and "Pager" not in json.dumps(action) for action in actions), name
    (action,) = deployed.composite["AlarmActions"]
    assert action == deployed.composite["OKActions"][0]
    assert action["Ref"].startswith("Pager")


def test_the_pager_has_an_encrypted_topic_that_our_alarms_may_publish_to(deployed: Deployed) -> None:
    (topic,) = deployed.of_type("AWS::SNS::Topic")
    assert "KmsMasterKeyId" in topic["Properties"]
    (policy,) = deployed.of_type("AWS::SNS::TopicPolicy")
    (statement,) = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert (statement["Action"], statement["Principal"]) == ("sns:Publish", {"Service": "cloudwatch.amazonaws.com"})
    assert "alarm:blue-*" in json.dumps(statement["Condition"])
    assert deployed.of_type("AWS::SNS::Subscription") == []


SLACK = {"workspace_id": "T0123ABCD", "channel_id": "C0123ABCD"}
TEAM = "01234567-89ab-cdef-0123-456789abcdef"
TEAMS = {"tenant_id": TEAM, "team_id": TEAM, "channel_id": "19%3Aabc0123%40thread.tacv2"}


@pytest.fixture(scope="module")
def chatting() -> Deployed:
    return Deployed(configuration(alarms={"slack": SLACK, "teams": TEAMS}))


def test_channels_of_chats_have_the_messages_and_may_do_nothing(chatting: Deployed) -> None:
    (role,) = [role for role in chatting.of_type("AWS::IAM::Role") if "chatbot" in json.dumps(role)]
    assert set(role["Properties"]) == {"AssumeRolePolicyDocument", "Description"}
    (slack,) = chatting.of_type("AWS::Chatbot::SlackChannelConfiguration")
    (teams,) = chatting.of_type("AWS::Chatbot::MicrosoftTeamsChannelConfiguration")
    assert slack["Properties"]["SlackWorkspaceId"] == "T0123ABCD"
    assert slack["Properties"]["SlackChannelId"] == "C0123ABCD"
    assert teams["Properties"]["TeamsChannelId"] == TEAMS["channel_id"]
    for channel in (slack["Properties"], teams["Properties"]):
        (topic,) = channel["SnsTopicArns"]
        assert "Topic" in json.dumps(topic)
        assert "Pager" not in json.dumps(topic)
        (guardrail,) = channel["GuardrailPolicies"]
        assert _joined(guardrail) == "arn:TOKEN:iam::aws:policy/AWSDenyAll"
        assert channel["ConfigurationName"].startswith("blue-")
        assert channel["UserRoleRequired"] is False


@pytest.mark.parametrize(
    ("pattern", "kind", "field"),
    [
        (chat.SLACK_WORKSPACE, "SlackChannelConfiguration", "SlackWorkspaceId"),
        (chat.SLACK_CHANNEL, "SlackChannelConfiguration", "SlackChannelId"),
        (chat.UUID, "MicrosoftTeamsChannelConfiguration", "TeamId"),
        (chat.UUID, "MicrosoftTeamsChannelConfiguration", "TeamsTenantId"),
        (chat.TEAMS_CHANNEL, "MicrosoftTeamsChannelConfiguration", "TeamsChannelId"),
    ],
)
@given(data=st.data())
def test_an_id_that_is_accepted_is_one_that_cloudformation_accepts(
    data: st.DataObject, pattern: str, kind: str, field: str
) -> None:
    schema = resource_schema("us-west-2", f"AWS::Chatbot::{kind}")
    value = data.draw(st.from_regex(pattern, fullmatch=True))
    assert re.search(schema["properties"][field]["pattern"], value)


def test_without_a_channel_there_is_none(deployed: Deployed) -> None:
    assert not [entry for entry in deployed.template["Resources"].values() if "Chatbot" in entry["Type"]]


@pytest.mark.parametrize(
    ("alarms", "field", "words"),
    [
        ({"slack": SLACK | {"workspace_id": "research"}}, "alarms.slack.workspace_id", "the id of a workspace"),
        ({"slack": SLACK | {"channel_id": "#runs"}}, "alarms.slack.channel_id", "the channel's link, not its name"),
        ({"teams": TEAMS | {"team_id": "research"}}, "alarms.teams.team_id", "a UUID"),
        ({"teams": TEAMS | {"channel_id": "19:abc@thread.tacv2"}}, "alarms.teams.channel_id", "with %3A and %40"),
    ],
)
def test_a_channel_is_named_by_its_id(tmp_path: Path, alarms: dict[str, Any], field: str, words: str) -> None:
    document = configuration().model_dump(mode="json", exclude_none=True, exclude_unset=True)
    path = tmp_path / "blue.yaml"
    path.write_text(yaml.safe_dump(document | {"alarms": alarms}))
    with pytest.raises(ConfigurationError, match=words) as refused:
        load_configuration(path)
    assert field in str(refused.value)


def test_a_message_that_cannot_be_sent_rings(deployed: Deployed) -> None:
    alarm = deployed.alarm("message-not-sent")
    assert (alarm["MetricName"], alarm["Namespace"]) == ("Errors", "AWS/Lambda")
    assert "Notify" in json.dumps(alarm["Dimensions"])


def test_states_say_when_they_are_over_and_events_do_not(deployed: Deployed) -> None:
    silent = {name for name, alarm in deployed.alarms.items() if not alarm.get("OKActions")}
    assert silent == {*ENDS, "blue-message-not-sent", "blue-events-lost"}


def test_every_alarm_says_what_it_means_what_to_do_and_where_to_read_on(deployed: Deployed) -> None:
    for name, alarm in [*deployed.alarms.items(), (COMPOSITE, deployed.composite)]:
        description = alarm["AlarmDescription"]
        pattern = r'[A-Z].+\. First: .+\. Runbook "[A-Z][a-z ]+": https://example\.org/runbooks\.md#[a-z-]+'
        assert re.fullmatch(pattern, description), name
        assert len(description) <= 1024, name


def test_alarms_watch_metrics_that_the_functions_publish(deployed: Deployed) -> None:
    ours = [alarm for alarm in deployed.alarms.values() if alarm.get("Namespace") == NAMESPACE]
    for alarm in ours:
        assert ClusterMetric(alarm["MetricName"])
        assert {each["Name"]: each["Value"] for each in alarm["Dimensions"]} == {
            DEPLOYMENT_DIMENSION: "blue",
            CLUSTER_DIMENSION: "blue",
        }
    assert len(ours) == 6


def test_silence_rings_only_where_silence_is_the_trouble(deployed: Deployed) -> None:
    ringing = {name for name, alarm in deployed.alarms.items() if alarm["TreatMissingData"] == "breaching"}
    assert ringing == {"blue-survey-missing"}
    assert {alarm["TreatMissingData"] for alarm in deployed.alarms.values()} == {"breaching", "notBreaching"}


def test_a_run_is_stalled_after_the_configured_minutes() -> None:
    alarm = Deployed(configuration(alarms={"stalled_minutes": 12})).alarm("training-stalled")
    assert (alarm["Threshold"], alarm["Statistic"], alarm["ComparisonOperator"]) == (
        12 * 60,
        "Maximum",
        "GreaterThanThreshold",
    )


def test_the_alarm_of_a_stalled_run_stays_on_between_two_polls(deployed: Deployed) -> None:
    longest_poll = Limits.model_json_schema()["properties"]["poll_seconds"]["maximum"]
    alarm = deployed.alarm("training-stalled")
    assert alarm["DatapointsToAlarm"] == 1
    assert (alarm["EvaluationPeriods"] - 1) * alarm["Period"] >= longest_poll


def test_one_loss_that_is_no_number_rings(deployed: Deployed) -> None:
    alarm = deployed.alarm("loss-not-finite")
    assert (alarm["Statistic"], alarm["Threshold"], alarm["ComparisonOperator"], alarm["EvaluationPeriods"]) == (
        "Sum",
        1,
        "GreaterThanOrEqualToThreshold",
        1,
    )


def test_a_checkpoint_that_slows_one_period_does_not_ring_but_a_slow_run_does(deployed: Deployed) -> None:
    alarm = deployed.alarm("throughput-below-floor")
    assert (alarm["Threshold"], alarm["ComparisonOperator"], alarm["Statistic"]) == (1, "LessThanThreshold", "Minimum")
    assert 1 < alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"]


def test_the_day_s_bill_is_compared_with_the_budget() -> None:
    alarm = Deployed(configuration(alarms={"daily_budget_usd": 250})).alarm("daily-budget")
    assert (alarm["Threshold"], alarm["Statistic"], alarm["Period"]) == (250, "Sum", 24 * 60 * 60)


@pytest.mark.parametrize("idle_minutes", [5, 20, 1000, 1440])
def test_idle_nodes_ring_only_after_the_reaper_has_had_its_time(idle_minutes: int) -> None:
    nodegroups = [{"instance_type": "c7i.4xlarge", "max_nodes": 2}]
    settings = configuration(capacity={"nodegroups": nodegroups, "idle_minutes": idle_minutes})
    alarm = Deployed(settings).alarm("nodes-without-run")
    waited = alarm["EvaluationPeriods"] * alarm["Period"] // 60
    assert idle_minutes + 15 <= waited < idle_minutes + 15 + alarm["Period"] // 60
    # Quota of PutMetricAlarm: a day, or seven days for periods of an hour and more.
    assert waited <= (24 * 60 if alarm["Period"] < 3600 else 7 * 24 * 60)


def test_the_file_system_rings_at_85_percent_of_what_was_bought() -> None:
    alarm = Deployed(configuration(), size_gib=2400).alarm("storage-nearly-full")
    used, free = sorted(alarm["Metrics"], key=lambda metric: "MetricStat" in metric)
    assert used["Expression"] == f"100 * (1 - free / {2400 * 1024**3})"
    assert free["MetricStat"]["Metric"]["MetricName"] == "FreeDataStorageCapacity"
    assert (free["MetricStat"]["Stat"], free["MetricStat"]["Period"]) == ("Sum", 60)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (85, "GreaterThanThreshold")


def test_what_pods_write_rings_by_what_it_costs_within_an_hour() -> None:
    alarm = Deployed(configuration(alarms={"pod_logs_usd_per_hour": 2.5})).alarm("pod-logs-expensive")
    usd, sent = sorted(alarm["Metrics"], key=lambda metric: "MetricStat" in metric)
    stat = sent["MetricStat"]
    assert stat["Metric"] == {
        "Namespace": "AWS/Logs",
        "MetricName": "IncomingBytes",
        "Dimensions": [{"Name": "LogGroupName", "Value": "/aws/containerinsights/blue/application"}],
    }
    assert (stat["Stat"], stat["Period"], alarm["EvaluationPeriods"]) == ("Sum", 3600, 1)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (2.5, "GreaterThanThreshold")
    # A gang that writes 10 MiB/s: eval is given our own expression.
    a_loud_hour = eval(usd["Expression"], {"sent": 10 * 1024**2 * 3600})
    assert a_loud_hour == pytest.approx(18.9, abs=0.1)


def test_where_pods_logs_go_nowhere_nothing_watches_them() -> None:
    bare = Deployed(configuration(cluster={"pod_logs": "none"}))
    assert "blue-pod-logs-expensive" not in bare.alarms
    assert "AWS/Logs" not in json.dumps(bare.template)


def test_without_a_file_system_nothing_watches_one() -> None:
    bare = Deployed(configuration(), size_gib=None)
    assert "blue-storage-nearly-full" not in bare.alarms
    assert "AWS/FSx" not in json.dumps(bare.template)


def test_every_dead_letter_queue_has_its_alarm(deployed: Deployed) -> None:
    assert {name for name in deployed.alarms if "dead-letters" in name} == {
        f"blue-dead-letters-{name}" for name in QUEUES.values()
    }


def test_an_event_that_no_dead_letter_queue_takes_rings(deployed: Deployed) -> None:
    """Names and dimensions: EventBridge user guide, "Monitoring Amazon EventBridge"; Scheduler's, "Monitoring with
    Amazon CloudWatch"."""
    expression, *metrics = deployed.alarm("events-lost")["Metrics"]
    watched = [entry["MetricStat"]["Metric"] for entry in metrics]
    rules = [metric for metric in watched if metric["Namespace"] == "AWS/Events"]
    assert {metric["MetricName"] for metric in rules} == {"InvocationsFailedToBeSentToDlq"}
    named = json.dumps([metric["Dimensions"] for metric in rules])
    assert all(rule in named for rule in ("Uploads", "AbortedRuns"))
    assert [metric for metric in watched if metric not in rules] == [
        {
            "Namespace": "AWS/Scheduler",
            "MetricName": "InvocationsFailedToBeSentToDeadLetterCount",
            "Dimensions": [{"Name": "ScheduleGroup", "Value": "blue"}],
        }
    ]
    assert all(f"FILL({entry['Id']}, 0)" in expression["Expression"] for entry in metrics)


def test_throttling_of_the_child_executions_counts_too(deployed: Deployed) -> None:
    stats = [
        metric["MetricStat"] for metric in deployed.alarm("execution-throttled")["Metrics"] if "MetricStat" in metric
    ]
    assert {stat["Metric"]["MetricName"] for stat in stats} == {"ExecutionThrottled"}
    machines = json.dumps([stat["Metric"]["Dimensions"] for stat in stats])
    assert "Training" in machines
    assert "WatchJob" in machines


def test_the_composite_rings_for_alarms_that_exist_and_need_a_person(deployed: Deployed) -> None:
    names = {
        entry["Properties"]["AlarmName"].removeprefix("blue-"): logical_id
        for logical_id, entry in deployed.template["Resources"].items()
        if entry["Type"] == "AWS::CloudWatch::Alarm"
    }
    (_, parts) = deployed.composite["AlarmRule"]["Fn::Join"]
    referred = {part["Fn::GetAtt"][0] for part in parts if isinstance(part, dict)}
    waiting = {name for name, logical_id in names.items() if logical_id in referred}
    assert referred <= set(names.values())
    assert set(names) - waiting == {
        "execution-throttled",
        "daily-budget",
        "pod-logs-expensive",
        "storage-nearly-full",
    }
    assert "AND" not in "".join(part for part in parts if isinstance(part, str))


def test_cloudwatch_may_publish_on_the_encrypted_topic_for_our_alarms_alone(deployed: Deployed) -> None:
    policies = {
        "AWS::KMS::Key": ("KeyPolicy", "kms:GenerateDataKey*"),
        "AWS::SNS::TopicPolicy": ("PolicyDocument", "sns:Publish"),
    }
    for kind, (document, action) in policies.items():
        (resource,) = [entry for entry in deployed.below.values() if entry["Type"] == kind]
        (statement,) = [
            statement
            for statement in resource["Properties"][document]["Statement"]
            if statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        ]
        assert action in statement["Action"]
        assert "alarm:blue-*" in json.dumps(statement["Condition"]["ArnLike"])
        assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}


def test_nothing_that_runs_depends_on_the_alarms(deployed: Deployed) -> None:
    assert "Observability" not in json.dumps(deployed.below)


# Rules


def test_the_packs_of_rules_find_nothing(deployed: Deployed, chatting: Deployed) -> None:
    for pack in (cdk_nag.AwsSolutionsChecks(), cdk_nag.ServerlessChecks()):
        for stack in (deployed.stack, chatting.stack):
            assert [violation.rule_name for violation in pack.validate_scope(stack).violations] == []


def test_our_own_rules_find_nothing(deployed: Deployed, chatting: Deployed) -> None:
    assert findings({"Observability": deployed.template}) == []
    assert findings({"Observability": chatting.template}) == []
