from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from recorded_runs import recorded

from trainflow.observed.pod import deleted_pod, read_pod
from trainflow.protocol.result import read_result
from trainflow.record.jobs import jobs_of

NOW = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)


def manifest(*, stage: str = "training", index: int = 0, attempt: int = 1, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"run-{stage}-{attempt}-{index}",
            "uid": f"{stage}-{attempt}-{index}",
            "creationTimestamp": f"2026-11-21T09:0{attempt}:00Z",
            "labels": {
                "trainflow/stage": stage,
                "trainflow/attempt": str(attempt),
                "trainflow/job": f"run-{stage}-{attempt}",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "main"}, {"name": "injected"}]},
        "status": status,
    }


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "injected", "state": {"running": {}}}, {"name": "main", "state": state}]


RUNNING = {"startedAt": "2026-11-21T09:30:00Z"}


def test_the_workloads_container_counts_not_an_injected_one() -> None:
    ended = {**RUNNING, "finishedAt": "2026-11-21T09:31:00Z", "exitCode": 0, "reason": "Completed"}

    pod = read_pod(manifest(phase="Succeeded", containerStatuses=container(terminated=ended)))

    assert (pod.phase, pod.exit_code, pod.container, pod.reason) == ("Succeeded", 0, "main", None)
    assert pod.finished_at == datetime(2026, 11, 21, 9, 31, tzinfo=UTC)


def test_a_failed_pods_own_error_is_its_message() -> None:
    said = '{"error": "DatasetInvalid", "message": "shard 3 has no key input_ids."}'
    ended = {**RUNNING, "finishedAt": "2026-11-21T09:31:00Z", "exitCode": 2, "message": said}

    pod = read_pod(manifest(phase="Failed", containerStatuses=container(terminated=ended)))

    assert pod.message == "DatasetInvalid: shard 3 has no key input_ids."


def test_an_init_container_that_failed_is_the_pods_container_and_explains_it() -> None:
    said = '{"error": "StorageFailed", "message": "--into /trainflow cannot be written."}'
    ended = {**RUNNING, "finishedAt": "2026-11-21T09:31:00Z", "exitCode": 1, "message": said}
    statuses = container(waiting={"reason": "PodInitializing"})
    inits = [{"name": "helpers", "state": {"terminated": ended}}]

    pod = read_pod(manifest(phase="Failed", containerStatuses=statuses, initContainerStatuses=inits))

    assert (pod.container, pod.exit_code, pod.has_log) == ("helpers", 1, True)
    assert pod.message == "StorageFailed: --into /trainflow cannot be written."


def test_a_pod_that_the_cluster_ended_says_why() -> None:
    pod = read_pod(manifest(phase="Failed", reason="Evicted", message="The node was low on memory."))

    assert (pod.reason, pod.message) == ("Evicted", "The node was low on memory.")


def test_a_waiting_pod_says_what_it_waits_for() -> None:
    pod = read_pod(manifest(phase="Pending", containerStatuses=container(waiting={"reason": "ImagePullBackOff"})))

    assert (pod.reason, pod.has_log, pod.finished) == ("ImagePullBackOff", False, False)


def test_the_programs_result_is_kept() -> None:
    ended = {**RUNNING, "finishedAt": "2026-11-21T09:31:00Z", "exitCode": 0, "message": '{"result": {"steps": 9}}'}

    pod = read_pod(manifest(phase="Succeeded", containerStatuses=container(terminated=ended)))

    assert read_result(pod.termination_message) == {"result": {"steps": 9}}


def test_a_pod_deleted_while_it_ran_is_closed_at_that_moment() -> None:
    pod = deleted_pod(read_pod(manifest(phase="Running", containerStatuses=container(running=RUNNING))), NOW)

    assert (pod.phase, pod.finished_at, pod.message) == ("Unknown", NOW, "deleted while it ran")


def test_a_finished_pod_stays_as_it_was_when_it_is_deleted() -> None:
    ended = {**RUNNING, "finishedAt": "2026-11-21T09:31:00Z", "exitCode": 0}
    pod = read_pod(manifest(phase="Succeeded", containerStatuses=container(terminated=ended)))

    gone = deleted_pod(pod, NOW)

    assert (gone.phase, gone.finished_at, gone.message, gone.deleted) == ("Succeeded", pod.finished_at, None, True)


def test_jobs_come_in_the_order_of_the_stages_with_rank_0_of_the_gangs() -> None:
    jobs = jobs_of("demo-3f2a9c1b4d5e", reversed(recorded("succeeded").pods))

    assert list(jobs) == ["stage", "precompile", "training", "publish"]
    assert {stage: job.rank0 for stage, job in jobs.items()} == {
        "stage": None,
        "precompile": "demo-3f2a9c1b4d5e-precompile-1-0-k7x2p",
        "training": "demo-3f2a9c1b4d5e-training-1-0-k7x2p",
        "publish": None,
    }
    assert {job.phase for job in jobs.values()} == {"Succeeded"}


def test_one_failed_pod_fails_the_job() -> None:
    assert jobs_of("demo-9b0e77d2c41a", recorded("worker_failed").pods)["training"].phase == "Failed"


def test_the_latest_attempt_gives_a_job_its_name_and_phase_but_all_pods_are_listed() -> None:
    pods = [
        read_pod(manifest(attempt=1, phase="Failed")),
        read_pod(manifest(attempt=2, phase="Running", containerStatuses=container(running=RUNNING))),
    ]

    job = jobs_of("run", pods)["training"]

    assert (job.name, job.attempts, job.phase, job.rank0) == ("run-training-2", 2, "Running", "run-training-2-0")
    assert [pod.name for pod in job.pods] == ["run-training-1-0", "run-training-2-0"]


@pytest.mark.parametrize(
    ("labels", "index"),
    [
        ({"batch.kubernetes.io/job-completion-index": "3"}, 3),
        ({"jobset.sigs.k8s.io/job-global-index": "0", "batch.kubernetes.io/job-completion-index": "3"}, 3),
        ({"volcano.sh/task-spec": "node", "volcano.sh/task-index": "3"}, 3),
        ({"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}, 0),
        ({"training.kubeflow.org/replica-index": "0", "trainflow/first-node-rank": "1"}, 1),
        ({"training.kubeflow.org/replica-index": "2", "trainflow/elastic": "true"}, 2),
        ({}, 0),
    ],
    ids=["job", "jobset and trainjob", "volcano", "pytorchjob master", "pytorchjob worker", "elastic worker", "pod"],
)
def test_a_pods_place_in_its_gang_is_read_from_whatever_its_controller_writes(
    labels: dict[str, str], index: int
) -> None:
    pod = read_pod({"metadata": {"name": "x", "uid": "1", "labels": labels}})
    assert (pod.index, pod.elastic) == (index, "trainflow/elastic" in labels)


def test_no_pod_of_the_record_finishes_before_it_starts() -> None:
    ended = {**RUNNING, "finishedAt": "2026-11-21T09:29:58Z", "exitCode": 0}
    (pod,) = jobs_of("run", [read_pod(manifest(phase="Succeeded", containerStatuses=container(terminated=ended)))])[
        "training"
    ].pods
    assert pod.started_at == pod.finished_at == datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
