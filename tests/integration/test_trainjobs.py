"""Runs on the backend `trainjob` in the twin: gangs of several sizes, and each way in which one ends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws import deployment
from local.place import TwinRuns
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_restarts import killed_after_its_first_checkpoint, spec_with_checkpoints
from tests.integration.test_runs import assert_nothing_is_left, processes_of, steps_spec
from tests.waiting import wait_until
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunError, RunRecord

API = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/training"
MERGE_PATCH = "application/merge-patch+json"
STOPPED = RunError(name="Stopped", message="On request.", what_to_do="")

Run = Callable[[RunSpec, str], RunRecord]


@pytest.fixture(scope="module")
def twin(demo_twin: Twin) -> Twin:
    return demo_twin


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(spec: RunSpec, run_id: str) -> RunRecord:
        return follow_run(twin, spec, run_id, folder=tmp_path / run_id)

    return start


@pytest.fixture
def cluster(twin: Twin) -> ApiClient:
    return ApiClient(load_connection(twin.kubeconfig))


def on_trainjob(spec: dict[str, Any], **compute: Any) -> RunSpec:
    return parse_run_spec({**spec, "compute": {**spec["compute"], "backend": "trainjob", **compute}})


def assert_no_objects_are_left(cluster: ApiClient) -> None:
    for path in (f"{API}/trainjobs", f"{API}/trainingruntimes", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"):
        wait_until(lambda path=path: cluster.get(path)["items"] == [])


@pytest.mark.parametrize("num_nodes", [1, 2, 3])
def test_a_gang_of_any_size_succeeds(run: Run, twin: Twin, cluster: ApiClient, num_nodes: int) -> None:
    run_id = f"trainjob-{num_nodes}-0000000a"
    record = run(on_trainjob(steps_spec(max_steps=10), num_nodes=num_nodes), run_id)
    assert (record.error, record.status) == (None, "SUCCEEDED")
    training = record.jobs["training"]
    assert [pod.exit_code for pod in training.pods] == [0] * num_nodes
    assert str(training.rank0).startswith(f"{run_id}-training-1-node-0-0-")
    assert record.metrics_published is not None
    assert (record.metrics_published.last_step, record.metrics_published.gaps) == (10, 0)
    assert_nothing_is_left(twin, run_id)
    assert_no_objects_are_left(cluster)


@pytest.mark.slow
def test_a_killed_rank_is_restarted_from_the_newest_checkpoint(
    run: Run, twin: Twin, cluster: ApiClient, tmp_path: Path
) -> None:
    run_id = "trainjob-00killed"
    with killed_after_its_first_checkpoint(twin, run_id):
        record = run(on_trainjob(spec_with_checkpoints()), run_id)
    assert (record.error, record.status) == (None, "SUCCEEDED")
    (restart,) = record.restarts
    assert restart.error in ("WorkerFailed", "NetworkFailed"), "the killed rank, or the one that has lost it"
    assert not restart.in_place
    logs = "".join(log.read_text() for log in tmp_path.glob(f"{run_id}/logs/{run_id}-training-2-node-0-0-*.log"))
    assert "Resuming from step-" in logs
    assert record.jobs["training"].name == f"{run_id}-training-2"
    assert record.metrics_published is not None
    assert (record.metrics_published.gaps, record.metrics_published.last_step) == (0, 30)
    assert_nothing_is_left(twin, run_id)
    assert_no_objects_are_left(cluster)


def test_a_program_that_fails_is_named_and_not_restarted(run: Run, twin: Twin, cluster: ApiClient) -> None:
    record = run(on_trainjob(steps_spec(exit_code=1)), "trainjob-000exit1")
    assert (record.status, record.error and record.error.name) == ("FAILED", "ScriptFailed")
    assert record.error is not None
    assert record.error.message.endswith("ended with exit code 1 (Error): the flux capacitor is missing")
    assert record.jobs["training"].attempts == 1
    assert_nothing_is_left(twin, record.run_id)
    assert_no_objects_are_left(cluster)


def test_a_stopped_run_leaves_nothing(run: Run, twin: Twin, cluster: ApiClient) -> None:
    run_id = "trainjob-00stopped"
    with ThreadPoolExecutor(1) as running:
        ending = running.submit(run, on_trainjob(steps_spec(max_steps=400)), run_id)
        wait_until(lambda: len(processes_of(run_id, TRAINFLOW_STAGE="training")) > 0)
        TwinRuns(twin).stop(run_id, reason=STOPPED)
        assert ending.result().status == "ABORTED"
    wait_until(lambda: deployment.gang_nodes() == 0)
    assert_nothing_is_left(twin, run_id)
    assert_no_objects_are_left(cluster)


def test_a_run_whose_trainjob_is_suspended_waits_and_goes_on_when_it_is_resumed(
    run: Run, twin: Twin, cluster: ApiClient
) -> None:
    run_id = "trainjob-suspended"
    path = f"{API}/trainjobs/{run_id}-training-1"
    with ThreadPoolExecutor(1) as running:
        ending = running.submit(run, on_trainjob(steps_spec(max_steps=60)), run_id)
        wait_until(lambda: len(processes_of(run_id, TRAINFLOW_STAGE="training")) > 0)
        cluster.patch(path, {"spec": {"suspend": True}}, MERGE_PATCH)
        wait_until(lambda: processes_of(run_id, TRAINFLOW_STAGE="training") == [])
        (condition,) = cluster.get(path)["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Suspended", "True")
        assert not ending.done()
        cluster.patch(path, {"spec": {"suspend": False}}, MERGE_PATCH)
        record = ending.result()
    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert record.jobs["training"].attempts == 1
    assert record.metrics_published is not None
    assert record.metrics_published.last_step == 60
    assert_nothing_is_left(twin, run_id)
    assert_no_objects_are_left(cluster)
