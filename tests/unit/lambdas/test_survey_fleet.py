"""SurveyFleet: metrics, dropped claims, released nodes and messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.gateways import executions
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.handlers.survey_fleet import lambda_handler
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import CLUSTER, CONTEXT, NAMESPACE, Aws
from trainflow.errors import ServiceUnavailable
from trainflow.models.run import Run
from trainflow.models.run_record import RunStatus
from trainflow.models.run_table import LastSurvey, row_of

TYPE = "trn1.32xlarge"


def run_survey() -> dict[str, Any]:
    return lambda_handler({}, CONTEXT)


def published(aws: Aws) -> dict[str, float]:
    """Sums of the cluster's metrics."""
    now = datetime.now(UTC)
    cloudwatch = aws.client("cloudwatch")
    return {
        metric["MetricName"]: cloudwatch.get_metric_statistics(
            Namespace="Trainflow",
            MetricName=metric["MetricName"],
            Dimensions=[{"Name": "ClusterName", "Value": CLUSTER}],
            StartTime=now - timedelta(hours=1),
            EndTime=now + timedelta(hours=1),
            Period=7200,
            Statistics=["Sum"],
        )["Datapoints"][0]["Sum"]
        for metric in cloudwatch.list_metrics(Namespace="Trainflow")["Metrics"]
    }


def started(aws: Aws, cluster: FakeKubernetesApi, *, nodes: int = 2, **fields: Any) -> Run:
    """A run that has claimed its nodes."""
    run = run_of(spec_with(**fields))
    execution = executions.start(aws.state_machine_arn, name=run.run_id, document="{}")
    run = run.model_copy(update={"execution_arn": execution.arn})
    aws.table.begin(row_of(run))
    KubernetesCluster(cluster, namespace=NAMESPACE).claim_nodes(run.run_id, TYPE, nodes)
    return run


def seen_before(aws: Aws, *, idle_minutes: float | None = None, minutes: float = 5) -> None:
    """Leave a survey of some minutes ago."""
    now = datetime.now(UTC)
    idle_since = {} if idle_minutes is None else {TYPE: now - timedelta(minutes=idle_minutes)}
    memory = LastSurvey(surveyed_at=now - timedelta(minutes=minutes), idle_since=idle_since)
    assert aws.table.remember(memory, previous=None)


def pod(name: str, phase: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "trainflow"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}


def test_nodes_pods_and_money_are_published(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=3)
    aws.add_nodegroup("trn1.2xlarge")
    started(aws, cluster)
    seen_before(aws)
    for name, phase in {"a": "Running", "b": "Running", "c": "Pending", "d": "Succeeded"}.items():
        cluster.add("pods", pod(name, phase))
    run_survey()
    values = published(aws)
    assert values.pop("EstimatedUsd") == pytest.approx(3 * 21.50 / 12, rel=0.01)
    assert values == {"NodesUp": 3, "NodesWithoutRun": 1, "PodsRunning": 2, "PodsPending": 1}
    assert aws.messages == []


def test_an_unknown_cost_is_logged_and_not_published(
    aws: Aws, cluster: FakeKubernetesApi, caplog: pytest.LogCaptureFixture
) -> None:
    aws.add_nodegroup("trn2.48xlarge", desired=1)
    seen_before(aws)
    assert run_survey()["usd"] is None
    assert "EstimatedUsd" not in published(aws)
    assert published(aws)["NodesUp"] == 1
    assert "No on-demand price of trn2.48xlarge in us-west-2 is known" in caplog.text


def test_node_groups_of_others_are_none_of_its_business(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.client("eks").create_nodegroup(
        clusterName=CLUSTER, nodegroupName="system", nodeRole="arn:aws:iam::123456789012:role/n", subnets=["subnet-1"]
    )
    assert run_survey()["nodes_up"] == 0


def test_idle_nodes_are_released_and_a_message_names_their_cost(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    seen_before(aws, idle_minutes=36)
    assert run_survey()["nodes_released"] == {TYPE: 2}
    assert aws.desired(TYPE) == 0
    ((subject, message),) = aws.messages
    assert subject == "Trainflow: 2 idle trn1.32xlarge released"
    assert "no run claimed them for 36 minutes" in message
    assert "about 25.80 USD" in message
    assert run_survey()["nodes_released"] == {}
    assert len(aws.messages) == 1


def test_nodes_stay_for_the_idle_time(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    seen_before(aws, idle_minutes=29)
    run_survey()
    assert aws.desired(TYPE) == 2


def test_the_claim_of_a_run_that_is_over_is_forgotten_and_its_nodes_idle_from_then_on(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    run = started(aws, cluster)
    aws.table.finish(run.run_id, status=RunStatus.FAILED, ended_at=datetime.now(UTC))
    answer = run_survey()
    assert answer["claims_dropped"] == [run.run_id]
    assert answer["nodes_without_run"] == 2
    assert cluster.names("configmaps") == []
    assert aws.desired(TYPE) == 2


@pytest.mark.parametrize("known", [True, False], ids=["stopped", "forgotten"])
def test_a_run_that_ended_without_writing_it_down_claims_nothing_any_more(
    aws: Aws, cluster: FakeKubernetesApi, known: bool
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    run = started(aws, cluster)
    assert run_survey()["claims_dropped"] == []
    if known:
        aws.client("stepfunctions").stop_execution(executionArn=run.execution_arn)
    else:
        aws.client("stepfunctions").delete_state_machine(stateMachineArn=aws.state_machine_arn)
        forgotten = row_of(run).model_copy(update={"execution_arn": f"{run.execution_arn}-forgotten"})
        aws.client("dynamodb").delete_item(TableName="runs", Key={"run_id": {"S": run.run_id}})
        aws.table.begin(forgotten)
    assert run_survey()["claims_dropped"] == [run.run_id]
    assert cluster.names("configmaps") == []


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.FAILED])
def test_nodes_of_a_run_that_runs_or_keeps_them_stay_for_ever(
    aws: Aws, cluster: FakeKubernetesApi, status: RunStatus
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    run = started(aws, cluster, teardown__on_failure=False)
    if status is not RunStatus.RUNNING:
        aws.table.finish(run.run_id, status=status, ended_at=datetime.now(UTC))
    seen_before(aws, idle_minutes=500)
    assert run_survey()["claims_dropped"] == []
    assert cluster.names("configmaps") == [f"{run.run_id}-nodes"]
    assert aws.desired(TYPE) == 2


def test_a_run_that_claims_nodes_while_they_are_given_back_has_them_again(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    seen_before(aws, idle_minutes=60)
    release = Nodegroups.release

    def interrupted(self: Any, nodegroup: str) -> int:
        started(aws, cluster)
        return release(self, nodegroup)

    monkeypatch.setattr(Nodegroups, "release", interrupted)
    assert run_survey()["nodes_released"] == {TYPE: 0}
    assert aws.desired(TYPE) == 2
    assert aws.messages == []


def test_money_is_counted_once_when_the_schedule_calls_twice(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.add_nodegroup(TYPE, desired=1)
    seen_before(aws)
    last = aws.table.last_survey()
    monkeypatch.setattr("lambdas.gateways.runs.RunTable.last_survey", lambda _self: last)
    assert "usd" in run_survey()
    assert run_survey() == {"superseded": True}
    assert published(aws)["NodesUp"] == 1


def test_a_node_group_that_is_being_changed_is_tried_again_by_the_schedule(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    seen_before(aws, idle_minutes=60)
    refusing("UpdateNodegroupConfig", "ResourceInUseException")
    with pytest.raises(ServiceUnavailable):
        run_survey()
    assert aws.messages == []
    memory = aws.table.last_survey()
    assert memory is not None
    assert TYPE in memory.idle_since
