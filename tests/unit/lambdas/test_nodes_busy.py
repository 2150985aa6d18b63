"""The record in S3 says how busy the nodes of the training were, for every end of a run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.handlers import backends, clean_up, recording, tear_down, write_record
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CLUSTER, CONTEXT, Aws
from tests.unit.lambdas.test_clean_up import TYPE, event_of, running
from trainflow.container_insights import CLUSTER as CLUSTER_DIMENSION
from trainflow.container_insights import INSTANCE, NAMESPACE, NODE
from trainflow.record.placement import Placement
from trainflow.record.steps import KeptSteps, kept_steps_from_json
from trainflow.workflow.run import Run
from trainflow.workflow.run_record import NodesBusy, RunRecord

NOW = datetime.now(UTC).replace(microsecond=0)
BEGAN = NOW - timedelta(minutes=30)

pytestmark = pytest.mark.usefixtures("begun_history")


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def add_pod(
    cluster: FakeKubernetesApi,
    run: Run,
    node: str,
    *,
    attempt: int = 1,
    began: datetime = BEGAN,
    stage: str = "training",
) -> None:
    """A pod of a job of the run, which runs."""
    name = f"{run.run_id}-{stage}-{attempt}-{node}"
    labels = {"trainflow/run": run.run_id, "trainflow/stage": stage, "trainflow/attempt": str(attempt)}
    running = {"name": "main", "state": {"running": {"startedAt": began.isoformat()}}}
    cluster.add(
        "pods",
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [running]},
        },
    )


def publish(aws: Aws, node: str, percent: float, *, at: datetime) -> None:
    """What Container Insights publishes of a node with NeuronCores."""
    dimensions = {CLUSTER_DIMENSION: CLUSTER, INSTANCE: f"i-{node}", NODE: node}
    datum = {
        "MetricName": "node_neuroncore_utilization",
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
        "Timestamp": at,
        "Value": percent,
    }
    aws.client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=[datum])


def tear_down_and_record(aws: Aws, run: Run, *, status: str = "SUCCEEDED") -> RunRecord:
    """The record that the workflow writes at its end, after it has deleted the pods."""
    tear_down.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    event = {"name": run.run_id, "execution_arn": run.execution_arn, "status": status}
    write_record.lambda_handler(event, CONTEXT)
    return record_of(aws, run)


def read(aws: Aws, run: Run, name: str) -> str:
    found = aws.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{run.run_id}/{name}")
    return str(found["Body"].read().decode())


def record_of(aws: Aws, run: Run) -> RunRecord:
    return RunRecord.model_validate_json(read(aws, run, "run.json"))


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_the_workflows_own_record_and_report_have_the_mean_of_the_trainings_time(
    aws: Aws, cluster: FakeKubernetesApi, status: str
) -> None:
    run = running(aws, cluster)
    for node, percents in {"n1": (80.0, 90.0), "n2": (60.0, 70.0)}.items():
        add_pod(cluster, run, node)
        publish(aws, node, 5.0, at=ago(50))  # before the training
        for minutes, percent in zip((20, 10), percents, strict=True):
            publish(aws, node, percent, at=ago(minutes))
    publish(aws, "another run's", 1.0, at=ago(10))
    written = tear_down_and_record(aws, run, status=status)
    assert written.nodes_busy == NodesBusy(of="NeuronCores", by_node={"n1": 85.0, "n2": 65.0})
    assert "NeuronCores busy" in read(aws, run, "report.html")


def test_of_a_restarted_training_the_last_attempt_counts(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    add_pod(cluster, run, "old", began=ago(40))
    add_pod(cluster, run, "new", attempt=2, began=ago(15))
    add_pod(cluster, run, "small", stage="stage")
    for node in ("old", "new", "small"):
        publish(aws, node, 20.0, at=ago(30))
        publish(aws, node, 90.0, at=ago(10))
    assert tear_down_and_record(aws, run).nodes_busy == NodesBusy(of="NeuronCores", by_node={"new": 90.0})


def test_a_stopped_run_has_it_too(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    add_pod(cluster, run, "n1")
    publish(aws, "n1", 75.0, at=ago(10))
    clean_up.lambda_handler(event_of(run, "ABORTED"), CONTEXT)
    assert record_of(aws, run).nodes_busy == NodesBusy(of="NeuronCores", by_node={"n1": 75.0})


def test_a_run_that_keeps_its_nodes_has_it_too(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster, teardown={"on_success": False})
    add_pod(cluster, run, "n1")
    publish(aws, "n1", 75.0, at=ago(10))
    clean_up.lambda_handler(event_of(run, "SUCCEEDED"), CONTEXT)
    assert record_of(aws, run).nodes_busy == NodesBusy(of="NeuronCores", by_node={"n1": 75.0})
    assert aws.desired(TYPE) == 2


@pytest.mark.parametrize("operation", ["ListMetrics", "GetMetricData"])
def test_a_record_is_written_without_it_where_cloudwatch_refuses(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None], operation: str
) -> None:
    run = running(aws, cluster)
    add_pod(cluster, run, "n1")
    publish(aws, "n1", 75.0, at=ago(10))
    refusing(operation, "Throttling")
    assert tear_down_and_record(aws, run).nodes_busy is None


def test_a_run_whose_training_never_began_has_none(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    publish(aws, "n1", 75.0, at=ago(10))
    assert tear_down_and_record(aws, run, status="FAILED").nodes_busy is None


def test_a_cluster_that_does_not_answer_keeps_no_nodes(aws: Aws, cluster: FakeKubernetesApi) -> None:
    def refuse() -> Any:
        raise ConnectionError

    recording.keep_placement(refuse, run_of().run_id)
    assert "Contents" not in aws.client("s3").list_objects_v2(Bucket=ARTIFACT_BUCKET)


def test_container_insights_knows_nothing_of_slurms_nodes(aws: Aws) -> None:
    recording.keep_placement(lambda: backends.connect("slurm"), run_of().run_id)
    assert "Contents" not in aws.client("s3").list_objects_v2(Bucket=ARTIFACT_BUCKET)


def test_the_placement_stays_beside_the_steps() -> None:
    placement = Placement(nodes=("n1", "n2"), started_at=BEGAN, ended_at=NOW)
    kept = KeptSteps(placement=placement)
    assert kept_steps_from_json(kept.extended((), kept.progress).to_json()).placement == placement
