"""SurveyFleet: metrics, dropped claims, released nodes and messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.backends.registry import KINDS
from lambdas.gateways import executions
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.handlers.survey_fleet import lambda_handler
from lambdas.logic.jobs import job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, run_on, spec_with
from tests.unit.lambdas.conftest import CACHE_TABLE, CLUSTER, CONTEXT, NAMESPACE, Aws
from trainflow.deployment.kubernetes_names import JOB_LABEL, MANAGED_BY, RUN_LABEL, STAGE_LABEL
from trainflow.errors import ServiceUnavailable
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL
from trainflow.nodes.training_nodes import Grants
from trainflow.workflow.compile_cache import new_lease
from trainflow.workflow.leftovers import HeldObject, LeftoverState, SweepReport
from trainflow.workflow.run import Run, Stage
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import LastSurvey, row_of

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


def started(
    aws: Aws, cluster: FakeKubernetesApi, *, run_id: str = "bert-0123456789ab", nodes: int = 2, **fields: Any
) -> Run:
    """A run that has claimed its nodes."""
    run = run_of(spec_with(**fields), run_id=run_id)
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


def test_nodes_that_the_cluster_makes_are_counted_while_a_run_uses_them_and_released_by_nobody(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_MAKES_NODES", "true")
    run = started(aws, cluster, nodes=2)
    for number in range(3):
        metadata = {"name": f"node-{number}", "labels": {INSTANCE_TYPE_LABEL: TYPE}}
        cluster.add("nodes", {"metadata": metadata, "status": {}})
    for number in range(2):
        metadata = {"name": f"held-{number}", "labels": {RUN_LABEL: run.run_id}}
        cluster.add("pods", {"metadata": metadata, "spec": {"nodeName": f"node-{number}"}, "status": {}})
    seen_before(aws, idle_minutes=36)
    answer = run_survey()
    assert (answer["nodes_up"], answer["nodes_without_run"], answer["nodes_released"]) == (2, 0, {})
    assert answer["usd"] > 0
    assert aws.messages == []


def test_nodes_stay_for_the_idle_time(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    seen_before(aws, idle_minutes=29)
    run_survey()
    assert aws.desired(TYPE) == 2


LONG_AGO = timedelta(days=100)
"""Longer than Step Functions knows an execution."""


def forgotten(aws: Aws, cluster: FakeKubernetesApi, *, status: RunStatus = RunStatus.FAILED, **fields: Any) -> Run:
    """A run that has ended so long ago that Step Functions does not have its execution any more."""
    run = started(aws, cluster, **fields)
    aws.client("dynamodb").delete_item(TableName="runs", Key={"run_id": {"S": run.run_id}})
    started_at = datetime.now(UTC) - LONG_AGO
    gone = {"execution_arn": f"{run.execution_arn}-gone", "started_at": started_at}
    aws.table.begin(row_of(run).model_copy(update=gone))
    if status is not RunStatus.RUNNING:
        aws.table.finish(run.run_id, status=status, ended_at=started_at)
    return run


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.RUNNING], ids=["noted", "end not noted"])
def test_the_claim_of_a_run_that_is_over_is_deleted_and_its_nodes_are_released_at_once(
    aws: Aws, cluster: FakeKubernetesApi, status: RunStatus
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    run = forgotten(aws, cluster, status=status)
    answer = run_survey()
    assert answer["leftovers"] == {run.run_id: "left"}
    assert answer["nodes_without_run"] == 2
    assert answer["nodes_released"] == {TYPE: 2}
    assert cluster.names("configmaps") == []
    assert aws.desired(TYPE) == 0


def test_nodes_of_a_run_that_is_over_stay_for_another_run_that_claims_them(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    started(aws, cluster, run_id="running")
    over = forgotten(aws, cluster, run_id="over")
    answer = run_survey()
    assert answer["leftovers"] == {over.run_id: "left"}
    assert answer["nodes_released"] == {}
    assert aws.desired(TYPE) == 2


def test_all_types_that_a_run_may_have_started_are_released(aws: Aws, cluster: FakeKubernetesApi) -> None:
    for name in (TYPE, "trn1n.32xlarge"):
        aws.add_nodegroup(name, desired=2)
    forgotten(aws, cluster, compute__fallback=["trn1n.32xlarge"])
    assert run_survey()["nodes_released"] == {TYPE: 2, "trn1n.32xlarge": 2}


def test_nodes_that_cannot_be_released_at_once_are_idle_from_then_on(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    run = forgotten(aws, cluster)
    refusing("UpdateNodegroupConfig", "ResourceInUseException")
    (sentence,) = run_survey()["trouble"]
    assert sentence.startswith(f"The nodes of {run.run_id}, {TYPE}, could not be released: ")
    assert cluster.names("configmaps") == []
    memory = aws.table.last_survey()
    assert memory is not None
    assert TYPE in memory.idle_since


def test_a_run_that_has_just_been_stopped_is_left_to_its_clean_up(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = started(aws, cluster)
    assert run_survey()["leftovers"] == {}
    aws.client("stepfunctions").stop_execution(executionArn=run.execution_arn)
    assert run_survey()["leftovers"] == {run.run_id: "ending"}
    assert cluster.names("configmaps") == [f"{run.run_id}-nodes"]


def hold_everything(aws: Aws, cluster: FakeKubernetesApi, run: Run) -> None:
    """Let a run have a job of each kind, pods, a service, network policies, grants, and the lease of a cache."""
    gateway = KubernetesCluster(cluster, namespace=NAMESPACE)
    for attempt, backend in enumerate(KINDS, start=1):
        on_backend = run_on(backend).model_copy(update={"run_id": f"{run.run_id}"})
        job = job_of(on_backend, Stage.TRAINING, attempt, artifacts_url="s3://a/")
        gateway.create(KINDS[backend].render(job))
    for (resource, _), manifest in cluster.objects.items():
        if resource == "pods":
            manifest.setdefault("status", {"phase": "Running"})
    labels = {**MANAGED_BY, RUN_LABEL: run.run_id, JOB_LABEL: f"{run.run_id}-training-7", STAGE_LABEL: "training"}
    alone = {"metadata": {"name": f"{run.run_id}-alone", "labels": labels}, "spec": {"nodeName": "node-1"}}
    cluster.add("pods", {**alone, "status": {"phase": "Running"}})
    grants = gateway.grants(TYPE)
    assert gateway.store_grants(TYPE, Grants(by_run={**grants.by_run, run.run_id: 2}, version=grants.version))
    assert CompileCaches(CACHE_TABLE).lease(
        new_lease(run, f"key-of-{run.run_id}", now=datetime.now(UTC)), instead_of=None
    )


def test_nothing_of_an_ended_run_is_left_and_everything_of_a_running_one_stays(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    running = started(aws, cluster, run_id="running")
    hold_everything(aws, cluster, running)
    of_running = dict(cluster.objects)
    ended = forgotten(aws, cluster, run_id="ended")
    hold_everything(aws, cluster, ended)
    assert run_survey()["leftovers"] == {ended.run_id: "left"}
    assert cluster.objects.keys() == of_running.keys()
    assert KubernetesCluster(cluster, namespace=NAMESPACE).grants(TYPE).by_run == {running.run_id: 2}
    assert [lease.run_id for lease in CompileCaches(CACHE_TABLE).leases()] == [running.run_id]


def test_what_belongs_to_no_known_run_is_reported_and_stays(aws: Aws, cluster: FakeKubernetesApi) -> None:
    KubernetesCluster(cluster, namespace=NAMESPACE).claim_nodes("somebodys", TYPE, 2)
    assert run_survey()["leftovers"] == {"somebodys": "unknown"}
    assert cluster.names("configmaps") == ["somebodys-nodes"]


def test_nothing_is_deleted_while_step_functions_does_not_answer(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    run = forgotten(aws, cluster)
    refusing("DescribeExecution", "ThrottlingException")
    assert run_survey()["leftovers"] == {run.run_id: "unseen"}
    assert cluster.names("configmaps") == [f"{run.run_id}-nodes"]


@pytest.mark.parametrize("request_", ["list", "delete"])
def test_a_sweep_lists_or_deletes_and_counts_no_money(aws: Aws, cluster: FakeKubernetesApi, request_: str) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    run = forgotten(aws, cluster)
    report = SweepReport.model_validate(lambda_handler({"sweep": request_}, CONTEXT))
    (of_run,) = report.runs
    assert (of_run.run_id, of_run.state, of_run.num_nodes) == (run.run_id, LeftoverState.LEFT, 2)
    assert of_run.objects == (HeldObject(kind="claim", name=f"{run.run_id}-nodes"),)
    assert report.deleted is (request_ == "delete")
    assert report.nodes_released == ({TYPE: 2} if report.deleted else {})
    assert aws.desired(TYPE) == (0 if report.deleted else 2)
    assert cluster.names("configmaps") == ([] if request_ == "delete" else [f"{run.run_id}-nodes"])
    assert aws.table.last_survey() is None


def test_the_nodes_of_a_run_that_keeps_them_stay_for_ever(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    run = forgotten(aws, cluster, teardown__on_failure=False)
    seen_before(aws, idle_minutes=500)
    assert run_survey()["leftovers"] == {run.run_id: "kept"}
    assert cluster.names("configmaps") == [f"{run.run_id}-nodes"]
    assert aws.desired(TYPE) == 2


def test_the_nodes_of_a_running_run_stay_for_ever(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2)
    started(aws, cluster)
    seen_before(aws, idle_minutes=500)
    assert run_survey()["leftovers"] == {}
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
