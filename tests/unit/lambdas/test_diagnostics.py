"""What is known of a failed run's pods is kept before they are deleted, however few of their logs can be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from lambdas.handlers import collect_diagnostics, failed_logs
from tests.fakes.kubernetes_api import Answer, FakeKubernetesApi
from tests.fakes.runs import run_of
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, Aws
from tests.unit.lambdas.test_lost_nodes import pod_on
from trainflow.deployment.kubernetes_names import RUN_LABEL

RUN = run_of()


@pytest.fixture
def failed_pods(cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Adds failed pods, and lets the logs of those that are named take some seconds and then fail with a 500."""
    read, clock = cluster.call_api, [1000.0]
    monkeypatch.setattr(failed_logs, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def add(*nodes: str, lost: tuple[str, ...] = (), seconds: float = 0.0) -> None:
        for node in nodes:
            pod = pod_on(node, phase="Failed", exit_code=1)
            pod["metadata"]["labels"] = {RUN_LABEL: RUN.run_id}
            cluster.add("pods", pod)
            cluster.logs[pod["metadata"]["name"]] = f"2026-11-23T12:00:00Z ValueError: on {node}\n"

        def call_api(path: str, method: str, **options: Any) -> Answer:
            if path.endswith("/log") and any(f"pod-on-{node}/" in path for node in lost):
                clock[0] += seconds
                raise client.ApiException(status=500, reason="Internal Server Error")
            return read(path, method, **options)

        monkeypatch.setattr(cluster, "call_api", call_api)

    return add


def collected(aws: Aws) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diagnoses in the answer, and those in S3."""
    error = {"Error": "WorkerFailed", "Cause": "{}"}
    event = {"run": RUN.model_dump(mode="json"), "error": error}
    answer = collect_diagnostics.lambda_handler(event, CONTEXT)
    key = f"runs/{RUN.run_id}/diagnostics.json"
    document = json.loads(aws.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=key)["Body"].read())
    return answer["diagnostics"], document["pods"]


def test_a_log_that_a_lost_node_does_not_give_is_named_and_delays_no_tear_down(
    aws: Aws, failed_pods: Callable[..., None]
) -> None:
    failed_pods("gone", "well", lost=("gone",))
    for diagnoses in collected(aws):
        gone, well = diagnoses
        assert (gone["pod"], gone["exit_code"], gone["last_lines"]) == ("pod-on-gone", 1, [])
        assert gone["log_unread"] == "The Kubernetes API answered 500 Internal Server Error."
        assert (well["last_lines"], "log_unread" in well) == (["ValueError: on well"], False)


def test_logs_that_do_not_answer_do_not_take_the_functions_time(aws: Aws, failed_pods: Callable[..., None]) -> None:
    """A silent log takes 20 seconds, and the function has 60."""
    failed_pods("a", "b", "c", "d", "e", lost=("a", "b", "c", "d"), seconds=20.5)
    diagnoses, stored = collected(aws)
    assert [found["pod"] for found in diagnoses] == [f"pod-on-{node}" for node in "abcde"]
    assert diagnoses[0]["log_unread"] == "The Kubernetes API answered 500 Internal Server Error."
    assert [found["log_unread"] for found in stored[1:]] == ["There was no time left to read this log."] * 4
