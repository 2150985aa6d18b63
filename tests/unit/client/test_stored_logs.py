"""Logs of pods that are gone, as the add-on's Fluent Bit leaves them in CloudWatch Logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from moto import mock_aws

from lambdas.logic.diagnostics import kept_text
from tests.fakes.runs import spec_with
from trainflow.client import stored_logs
from trainflow.client.place import LogNotFound, LogRequest, PlaceRefused
from trainflow.client.runs import DeployedRuns
from trainflow.client.stored_logs import PodFilter, StoredLogs
from trainflow.deployment.address import DeploymentAddress, container_log
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.kubernetes.api import KubernetesApi
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run_record import Job, RunRecord, RunStatus

GROUP = container_log("mine", "application")
BEGAN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
CONTAINER = "d" * 64


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setattr(stored_logs, "POLL_SECONDS", 0.0)
    with mock_aws():
        client = boto3.client("logs", region_name="us-west-2")
        client.create_log_group(logGroupName=GROUP)
        yield client


def put(logs: Any, pod: str, *lines: str, second: float = 1.0) -> None:
    """Lines of a pod, in the form of the chart's configuration: CRI's fields, and the Kubernetes filter's."""
    stream = f"ip-10-0-0-1-application.var.log.containers.{pod}_training_training-{CONTAINER}.log"
    at = BEGAN + timedelta(seconds=second)
    kubernetes = {"pod_name": pod, "namespace_name": "training", "container_name": "training", "host": "ip-10-0-0-1"}
    events = [
        {
            "timestamp": round(at.timestamp() * 1000) + number,
            "message": json.dumps(
                {"time": at.isoformat(), "stream": "stdout", "_p": "F", "log": line, "kubernetes": kubernetes}
            ),
        }
        for number, line in enumerate(lines)
    ]
    if not logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=stream)["logStreams"]:
        logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def test_the_lines_of_one_pod_are_found_in_their_order_and_no_others(logs: Any) -> None:
    put(logs, "bert-training-1-1-aaaaa", "another rank")
    put(logs, "bert-training-1-0-bbbbb", "one", '{"two": 2}', second=2)
    put(logs, "bert-training-1-0-ccccc", "after an eviction", second=3)
    put(logs, "bert-training-1-0-1-ddddd", "another job's")
    found = StoredLogs(logs, GROUP).lines(PodFilter(name="bert-training-1-0"), since=BEGAN, until=None)
    assert list(found) == ["one", '{"two": 2}', "after an eviction"]
    later = StoredLogs(logs, GROUP).lines(
        PodFilter(name="bert-training-1-0"), since=BEGAN + timedelta(seconds=2.5), until=None
    )
    assert list(later) == ["after an eviction"]
    whole = PodFilter(name="bert-training-1-0-bbbbb", is_whole=True)
    assert list(StoredLogs(logs, GROUP).lines(whole, since=BEGAN, until=BEGAN + timedelta(seconds=9))) == [
        "one",
        '{"two": 2}',
    ]


def test_a_followed_log_goes_on_with_lines_that_come_late_and_repeats_none(logs: Any) -> None:
    pod = PodFilter(name="bert-training-1-0")
    arriving = [("third", 3.0), ("second", 2.0), (None, 0.0)]

    def has_ended() -> bool:
        line, second = arriving.pop(0)
        if line is not None:
            put(logs, "bert-training-1-0-bbbbb", line, second=second)
        return line is None

    put(logs, "bert-training-1-0-bbbbb", "first")
    found = StoredLogs(logs, GROUP).lines(pod, since=BEGAN, until=None, has_ended=has_ended)
    assert list(found) == ["first", "third", "second"]


def test_the_service_is_asked_for_the_pods_lines_alone_and_an_empty_page_is_not_the_end() -> None:
    client = boto3.client("logs", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    asked = {
        "logGroupName": GROUP,
        "filterPattern": '{ $.kubernetes.pod_name = "bert-training-1-0*" }',
        "startTime": round(BEGAN.timestamp() * 1000),
    }
    message = json.dumps({"log": "one", "kubernetes": {"pod_name": "bert-training-1-0-bbbbb"}})
    with Stubber(client) as answers:
        answers.add_response("filter_log_events", {"events": [], "nextToken": "more"}, asked)
        event = {"eventId": "1", "timestamp": 1, "message": message, "logStreamName": "s", "ingestionTime": 1}
        answers.add_response("filter_log_events", {"events": [event]}, {**asked, "nextToken": ANY})
        found = StoredLogs(client, GROUP).lines(PodFilter(name="bert-training-1-0"), since=BEGAN, until=None)
        assert list(found) == ["one"]


def test_what_is_missing_is_said_before_the_first_line(logs: Any) -> None:
    with pytest.raises(LogNotFound, match=rf"no line .*pod x-0 in {GROUP}"):
        StoredLogs(logs, GROUP).lines(PodFilter(name="x-0"), since=BEGAN, until=None)
    with pytest.raises(LogNotFound, match=r"log group nothing\b.*cluster\.pod_logs"):
        StoredLogs(logs, "nothing").lines(PodFilter(name="x-0"), since=BEGAN, until=None)
    client = boto3.client("logs", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as answers:
        answers.add_client_error("filter_log_events", "AccessDeniedException", "User x is not authorized", 400)
        with pytest.raises(PlaceRefused, match="logs:FilterLogEvents: User x "):
            StoredLogs(client, GROUP).lines(PodFilter(name="x-0"), since=BEGAN, until=None)


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("job", ["r-training-1-0", "r-training-1-3"]),
        ("jobset", ["r-training-1-node-0-0", "r-training-1-node-0-3"]),
        ("volcano", ["r-training-1-node-0", "r-training-1-node-3"]),
        ("pytorchjob", ["r-training-1-master-0", "r-training-1-worker-2"]),
        ("trainjob", ["r-training-1-node-0-0", "r-training-1-node-0-3"]),
        ("pod", ["r-training-1", "r-training-1"]),
    ],
)
def test_pods_are_named_as_their_controllers_name_them(backend: BackendName, names: list[str]) -> None:
    assert [KUBERNETES_KINDS[backend].pod_name("r-training-1", rank) for rank in (0, 3)] == names


def test_elastic_workers_are_counted_without_a_master() -> None:
    kind = KUBERNETES_KINDS["pytorchjob"]
    assert [kind.pod_name("j", rank, elastic=True) for rank in (0, 3)] == ["j-worker-0", "j-worker-3"]


def ended_run(logs: Any, monkeypatch: pytest.MonkeyPatch, *, cluster_refuses: bool, **spec: Any) -> DeployedRuns:
    """A run whose training had a second attempt, and whose pods are gone or cannot be seen."""
    session = boto3.Session(region_name="us-west-2")
    states, document = session.client("stepfunctions"), json.dumps(spec_with(**{"compute__backend": "job", **spec}))
    session.client("s3", region_name="us-east-1").create_bucket(Bucket="artifacts")
    role = "arn:aws:iam::123456789012:role/states"
    arn = states.create_state_machine(name="training", definition="{}", roleArn=role)["stateMachineArn"]
    states.start_execution(stateMachineArn=arn, name="bert-1", input=document)
    record = RunRecord(
        run_id="bert-1",
        status=RunStatus.FAILED,
        spec={},
        started_at=BEGAN,
        ended_at=BEGAN + timedelta(minutes=1),
        jobs={"training": Job(name="bert-1-training-2", attempts=2, phase="Failed")},
    )

    class NoPods:
        def call(self, *_: object, **__: object) -> dict[str, Any]:
            return {"items": []}

    def kubernetes() -> KubernetesApi:
        if cluster_refuses:
            raise PlaceRefused("These credentials may not call eks:DescribeCluster.")
        return NoPods()  # type: ignore[return-value]

    address = DeploymentAddress(
        deployment="mine",
        state_machine_arn=arn,
        artifact_bucket="artifacts",
        data_bucket="data",
        cluster="mine",
        namespace="training",
    )
    client: Any = session.client
    runs = DeployedRuns(address, client=client, kubernetes=kubernetes)
    monkeypatch.setattr(runs, "record", lambda _: record)
    return runs


def test_a_log_that_is_followed_is_awaited_until_the_run_ends(logs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who has just started a run follows it before its first pod is there."""
    runs = ended_run(logs, monkeypatch, cluster_refuses=False)
    no_jobs = RunRecord(run_id="bert-1", status=RunStatus.RUNNING, spec={}, started_at=BEGAN)
    monkeypatch.setattr(runs, "record", lambda _: no_jobs)
    told: list[str] = []
    with pytest.raises(LogNotFound, match="no pod of rank 1 now"):
        runs.log("bert-1", LogRequest(rank=1))
    lines = runs.log("bert-1", LogRequest(rank=1, follow=True, notify=told.append))
    arn = runs._execution("bert-1")["executionArn"]
    boto3.client("stepfunctions", region_name="us-west-2").stop_execution(executionArn=arn)
    assert (list(lines), told) == ([], ["Waiting for the log of rank 1."])
    with pytest.raises(LogNotFound, match="no pod of rank 1 now"):
        runs.log("bert-1", LogRequest(rank=1, follow=True))


@pytest.mark.parametrize("cluster_refuses", [False, True])
def test_the_log_of_a_rank_is_that_of_the_last_attempt_when_its_pod_is_not_to_be_seen(
    logs: Any, monkeypatch: pytest.MonkeyPatch, cluster_refuses: bool
) -> None:
    put(logs, "bert-1-training-1-1-aaaaa", "first attempt")
    put(logs, "bert-1-training-2-1-bbbbb", "second attempt", second=2)
    runs = ended_run(logs, monkeypatch, cluster_refuses=cluster_refuses)
    assert list(runs.log("bert-1", LogRequest(rank=1))) == ["second attempt"]
    assert list(runs.log("bert-1", LogRequest(pod="bert-1-training-1-1-aaaaa"))) == ["first attempt"]
    reason = "eks:DescribeCluster" if cluster_refuses else "no pod of rank 0 now"
    with pytest.raises(LogNotFound, match=rf"{reason}.* no line .*-1-training-2-0 in"):
        runs.log("bert-1", LogRequest(rank=0))


def test_the_log_of_an_elastic_jobs_rank_is_that_of_a_worker(logs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(logs, "bert-1-training-2-worker-0", "worker")
    elastic = {"compute__backend": "pytorchjob", "compute__elastic": {"min_nodes": 1, "max_nodes": 4}}
    runs = ended_run(logs, monkeypatch, cluster_refuses=True, **elastic)
    assert list(runs.log("bert-1", LogRequest(rank=0))) == ["worker"]
    with pytest.raises(LogNotFound, match="it has ranks 0 to 3"):
        runs.log("bert-1", LogRequest(rank=4))


def test_a_rank_that_the_gang_does_not_have_is_not_searched_for(logs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where pods would be, nor in a log group that has nothing to do with it."""
    runs = ended_run(logs, monkeypatch, cluster_refuses=True)
    with pytest.raises(LogNotFound) as refused:
        runs.log("bert-1", LogRequest(rank=5))
    assert str(refused.value) == "The run bert-1 has no node of rank 5; it has ranks 0 to 1."


def test_the_last_lines_that_a_run_has_kept_are_shown_where_no_log_is_left(
    logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.delete_log_group(logGroupName=GROUP)
    runs = ended_run(logs, monkeypatch, cluster_refuses=False)
    arn = runs._execution("bert-1")["executionArn"]
    s3 = boto3.client("s3", region_name="us-east-1")
    lines = [LogLine(logged_at=BEGAN + timedelta(seconds=second), text=f"line  {second}") for second in (1, 2)]
    s3.put_object(Bucket="artifacts", Key="runs/bert-1/logs/bert-1-training-2-0-bbbbb.log", Body=kept_text(lines))
    told: list[str] = []

    with pytest.raises(LogNotFound, match="There is no log group"):
        runs.log("bert-1", LogRequest(notify=told.append))
    assert not told, "lines that are kept before the end are not the last ones"

    boto3.client("stepfunctions", region_name="us-west-2").stop_execution(executionArn=arn)
    assert list(runs.log("bert-1", LogRequest(notify=told.append))) == ["line  1", "line  2"]
    assert "the last lines that bert-1 has kept" in told[0]
    assert list(runs.log("bert-1", LogRequest(since=BEGAN + timedelta(seconds=2)))) == ["line  2"]
    assert list(runs.log("bert-1", LogRequest(pod="bert-1-training-2-0-bbbbb"))) == ["line  1", "line  2"]
    with pytest.raises(LogNotFound, match="There is no log group"):
        runs.log("bert-1", LogRequest(rank=1))

    for other in ("", "no time\n", "2026 is a year\n"):  # a program of the run may have written the object
        s3.put_object(Bucket="artifacts", Key="runs/bert-1/logs/bert-1-training-2-0-bbbbb.log", Body=other.encode())
        assert list(runs.log("bert-1", LogRequest(since=BEGAN))) == [other.rstrip("\n")]
