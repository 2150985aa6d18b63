"""What rank 0 logs until its program has ended is published once, though its log is deleted with its pod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

from lambdas.gateways import metrics
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.handlers import backends, publish_metrics, publishing, tear_down
from lambdas.logic.jobs import job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of
from tests.unit.lambdas.conftest import CONTEXT, NAMESPACE, Aws
from tests.waiting import PATIENCE
from trainflow.errors import ClusterUnavailable
from trainflow.failures.judgement import Judgement, to_text
from trainflow.protocol.checkpoint_line import checkpoint_line
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import MetricsCursor, Stage

RUN = run_of()
TRAINING = job_of(RUN, Stage.TRAINING, 1, artifacts_url="s3://a/").ref
NOW = datetime.now(UTC).replace(microsecond=0)


def line(step: int) -> LogLine:
    text = (
        f"LOG {NOW:%a %b %d %H:%M:%S %Y} - (0, {step}) step_loss : {step:.4f} learning_rate : 4e-4 throughput : 200.00"
    )
    return LogLine(NOW, text)


@dataclass
class Cluster:
    """A backend whose only pod logs more steps while it ends, and is gone with its log after that."""

    logged: list[int]
    logged_at_the_end: list[int]
    done: list[str] = field(default_factory=list)
    is_there: bool = True
    fails_at: str | None = None
    answers: Event | None = None
    """When the kubelet answers with the log; at once without it."""
    deleted: Event = field(default_factory=Event)

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self.fails_at:
            raise ClusterUnavailable(f"The Kubernetes API did not answer: {what}.")

    def rank0(self, _job: Any) -> str | None:
        return "rank-0" if self.is_there else None

    def present_rank0(self, _run_id: str, pod: str) -> str:
        return pod

    def result(self, _job: Any, *, pod: str | None) -> str | None:
        self._do("read the result")
        return '{"result": {"steps": 7}}' if pod == "rank-0" else None

    def read_log(self, _pod: str, **_options: Any) -> Iterator[LogLine]:
        return map(line, self.logged) if self.is_there else iter(())

    def follow_log(self, _pod: str, **_options: Any) -> Iterator[LogLine]:
        if self.answers is not None:
            assert self.answers.wait(timeout=PATIENCE)
        self._do("open the log")
        return self._followed()

    def _followed(self) -> Iterator[LogLine]:
        self._do("read the log")
        yield from map(line, [*self.logged, *self.logged_at_the_end])

    def cancel(self, _run_id: str) -> list[str]:
        self._do("delete")
        self.is_there = False
        self.deleted.set()
        return [TRAINING.name]

    def delete(self, _job: Any, *, grace_seconds: int | None = None) -> None:
        self.cancel("")

    def is_stopped(self, _run_id: str) -> bool:
        return not self.is_there

    def pods_to_diagnose(self, _run_id: str) -> list[str]:
        return []

    def placement(self, _run_id: str) -> None:
        return None

    def release_nodes(self, _instance_type: str) -> int:
        self._do("release")
        return 2


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps whose loss was sent, in the order of sending."""
    sent: list[int] = []

    def publish(data: list[Any], *, deployment: str) -> int:
        sent.extend(round(datum.value) for datum in data if datum.metric == "StepLoss")
        return 0

    monkeypatch.setattr(metrics, "publish", publish)
    return sent


@pytest.fixture
def pods(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(logged=[1, 2, 3], logged_at_the_end=[4, 5])
    monkeypatch.setattr(backends, "connect", lambda _name: found)
    return found


WAYS: dict[str, dict[str, Any]] = {
    "StopAtLimit": {"training": TRAINING.model_dump(mode="json"), "stopping_since": NOW.isoformat()},
    "TearDownAfterFailure": {"training": TRAINING.model_dump(mode="json")},
    "DeleteJob": {"job": TRAINING.model_dump(mode="json"), "error": {"Error": "JobEvicted", "Cause": "{}"}},
}


def call(state: str, progress: Any = None) -> dict[str, Any]:
    given = MetricsCursor().model_dump(mode="json") if progress is None else progress
    return dict(
        tear_down.lambda_handler({"run": RUN.model_dump(mode="json"), "progress": given, **WAYS[state]}, CONTEXT)
    )


def poll() -> Any:
    event = {
        "run": RUN.model_dump(mode="json"),
        "rank0": "rank-0",
        "cursor": MetricsCursor().model_dump(mode="json"),
    }
    return publish_metrics.lambda_handler(event, CONTEXT)["cursor"]


@pytest.mark.parametrize("state", WAYS)
def test_steps_that_are_logged_while_the_program_ends_are_published_once(
    pods: Cluster, steps: list[int], state: str
) -> None:
    progress = poll()
    first = call(state, progress)
    assert (steps, first["progress"]["datapoints"]) == ([1, 2, 3, 4, 5], 5)
    assert pods.done[:3] == ["open the log", "delete", "read the log"]
    repeated = call(state, progress)
    assert steps == [1, 2, 3, 4, 5], "a call that crashed after it had published is repeated with the same event"
    assert repeated["progress"]["last_step"] == 5, "and knows what the first one has published"
    pods.is_there = True
    again = call(state, progress)
    assert steps == [1, 2, 3, 4, 5], "also if the pod is still there"
    assert again["progress"]["last_step"] == 5


@pytest.mark.parametrize("state", WAYS)
def test_a_run_that_was_never_polled_has_all_its_steps_published(pods: Cluster, steps: list[int], state: str) -> None:
    call(state)
    assert steps == [1, 2, 3, 4, 5]


def test_what_a_job_logs_while_it_is_deleted_is_no_progress_of_the_next_one(pods: Cluster, steps: list[int]) -> None:
    progress = poll()
    assert call("DeleteJob", progress)["restarted_at_step"] == 5
    assert call("DeleteJob", progress)["restarted_at_step"] == 5, (
        "also if the first call crashed after it had published"
    )


def test_a_checkpoint_of_before_a_restart_is_no_progress_of_the_next_job(
    pods: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.logged, pods.logged_at_the_end = [], []
    assert call("DeleteJob")["restarted_at_checkpoint"] == -1, "HasProgressed compares numbers"
    monkeypatch.setattr(pods, "_followed", lambda: iter([LogLine(NOW, checkpoint_line(40))]))
    pods.is_there = True
    for _ in range(2):
        assert call("DeleteJob")["restarted_at_checkpoint"] == 40, "also if the first call crashed after it was read"


def tear_down_after_success() -> dict[str, Any]:
    event = {"run": RUN.model_dump(mode="json"), "trained": TRAINING.model_dump(mode="json")}
    return dict(tear_down.lambda_handler(event, CONTEXT))


def test_the_result_of_a_training_is_read_before_its_pods_are_deleted(pods: Cluster) -> None:
    assert tear_down_after_success()["trained_steps"] == 7
    assert pods.done.index("read the result") < pods.done.index("delete") < pods.done.index("release")
    assert tear_down_after_success()["trained_steps"] is None, "a repeated call finds no pod"


def test_a_result_that_cannot_be_read_keeps_no_node(pods: Cluster) -> None:
    pods.fails_at = "read the result"
    assert tear_down_after_success()["trained_steps"] is None
    assert "release" in pods.done


def test_without_a_step_there_is_a_number_to_compare_with(pods: Cluster, steps: list[int]) -> None:
    pods.logged, pods.logged_at_the_end = [], []
    assert call("DeleteJob")["restarted_at_step"] == -1, "HasProgressed compares numbers"


@pytest.mark.parametrize("fails_at", ["open the log", "read the log"])
@pytest.mark.parametrize("state", WAYS)
def test_no_trouble_with_the_log_keeps_a_job_or_a_node(
    pods: Cluster, steps: list[int], state: str, fails_at: str
) -> None:
    progress = poll()
    pods.fails_at = fails_at
    answer = call(state, progress)
    if state == "DeleteJob":
        progress |= {"restarted_at_step": 3}
    assert (answer["deleted_jobs"], answer["progress"], pods.is_there) == ([TRAINING.name], progress, False)
    assert ("release" in pods.done) == (state != "DeleteJob")
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("state", WAYS)
def test_the_log_of_a_lost_node_does_not_hold_up_the_deletion(
    pods: Cluster, steps: list[int], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "OPENING_SECONDS", 0.05)
    pods.answers = Event()
    call(state)
    assert (pods.done[0], steps) == ("delete", [])
    pods.answers.set()


@pytest.mark.parametrize(("lost", "opened"), [("rank-0", False), ("rank-1", True)])
def test_the_log_of_a_pod_whose_node_is_known_to_be_lost_is_not_opened(
    pods: Cluster, steps: list[int], lost: str, opened: bool
) -> None:
    cause = to_text("The node is lost.", Judgement(rule="node", pod=lost, node="node-0"))
    event = {**WAYS["DeleteJob"], "error": {"Error": "NodeLost", "Cause": json.dumps({"errorMessage": cause})}}
    given = {"run": RUN.model_dump(mode="json"), "progress": MetricsCursor().model_dump(mode="json")}
    tear_down.lambda_handler({**given, **event}, CONTEXT)
    assert ("open the log" in pods.done) is opened
    assert "delete" in pods.done


def test_a_program_that_writes_nothing_until_it_is_asked_to_end_is_read_to_its_end(
    pods: Cluster, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "OPENING_SECONDS", 5.0)
    monkeypatch.setattr(publishing, "wait", lambda opening, timeout: None)
    pods.answers = pods.deleted
    call("DeleteJob")
    assert pods.done[:3] == ["delete", "open the log", "read the log"]
    assert steps == [1, 2, 3, 4, 5]


def test_metrics_that_cloudwatch_does_not_take_keep_no_node(pods: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_named: Any) -> int:
        raise ClusterUnavailable("not now")

    monkeypatch.setattr(metrics, "publish", refuse)
    assert call("StopAtLimit")["nodes_released"] == 2


@pytest.mark.parametrize("event", [{}, {"job": {**TRAINING.model_dump(mode="json"), "stage": "precompile"}}])
def test_no_log_is_followed_for_a_run_that_has_not_trained(
    pods: Cluster, steps: list[int], event: dict[str, Any]
) -> None:
    tear_down.lambda_handler({"run": RUN.model_dump(mode="json"), **event}, CONTEXT)
    assert ("open the log" in pods.done, steps) == (False, [])


class Endless:
    """A log that is followed and does not end before the client closes it."""

    def __init__(self) -> None:
        self._closed = Event()

    def stream(self, _amount: int) -> Iterator[bytes]:
        yield f"{NOW:%Y-%m-%dT%H:%M:%S}.000000000Z one\n".encode()
        assert self._closed.wait(timeout=PATIENCE)
        raise OSError("closed")

    def shutdown(self) -> None:
        self._closed.set()

    def close(self) -> None: ...


@pytest.mark.usefixtures("aws")
def test_a_log_that_does_not_end_is_given_up_and_what_has_arrived_counts(
    cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.logs["rank-0"] = ""
    answers = cluster.call_api
    monkeypatch.setattr(
        cluster,
        "call_api",
        lambda path, *rest, **named: Endless() if path.endswith("/log") else answers(path, *rest, **named),
    )
    followed = KubernetesCluster(cluster, namespace=NAMESPACE).follow_log("rank-0", since=NOW, longest_seconds=0.1)
    assert [each.text for each in followed] == ["one"]
