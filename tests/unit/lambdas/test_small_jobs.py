"""A run's small jobs are started again where that can help: staging, publishing, the preflight's probe."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.handlers import preflight, publish_artifacts, stage_data
from lambdas.logic.small_jobs import MAX_ATTEMPTS, attempt_after
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import job_ref, run_of
from tests.unit.lambdas.conftest import CONTEXT, Aws
from trainflow.errors import (
    ClusterUnavailable,
    DatasetNotFound,
    PreflightFailed,
    ScriptFailed,
    TrainflowError,
    WorkerFailed,
    named_errors,
)
from trainflow.protocol.pods import CLAIM, SERVICE_ACCOUNT
from trainflow.workflow.run import Run, Stage

JobEvicted, NodeLost, RemoteUnavailable, StorageUnavailable = map(
    named_errors().__getitem__, ("JobEvicted", "NodeLost", "RemoteUnavailable", "StorageUnavailable")
)

RUN = run_of()
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
GONE = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]}
WRONG = {
    "phase": "Failed",
    "containerStatuses": [
        {
            "state": {
                "terminated": {
                    "exitCode": 1,
                    "reason": "Error",
                    "message": '{"error": "DatasetNotFound", "message": "There is no data set at s3://corpus/x."}',
                }
            }
        }
    ],
}


def poll_staging(attempt: int) -> dict[str, Any]:
    return stage_data.lambda_handler({"run": RUN.model_dump(mode="json"), "attempt": attempt}, CONTEXT)


def poll_publishing(attempt: int) -> dict[str, Any]:
    training = job_ref(RUN).model_dump(mode="json")
    event = {"run": RUN.model_dump(mode="json"), "training": training, "attempt": attempt}
    return publish_artifacts.lambda_handler(event, CONTEXT)


def poll_preflight(attempt: int) -> dict[str, Any]:
    return preflight.lambda_handler({"run": RUN.model_dump(mode="json"), "attempt": attempt}, CONTEXT)


POLLS = {Stage.STAGE: poll_staging, Stage.PUBLISH: poll_publishing, Stage.PREFLIGHT: poll_preflight}


@pytest.fixture(autouse=True)
def can_run_pods(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(RUN.spec.compute.instance_type, desired=0)
    cluster.add("serviceaccounts", {"metadata": {"name": SERVICE_ACCOUNT}})
    claim = {"metadata": {"name": CLAIM}, "spec": {"volumeName": "shared"}, "status": {"phase": "Bound"}}
    cluster.add("persistentvolumeclaims", claim)


def fail(cluster: FakeKubernetesApi, run: Run, stage: Stage, attempt: int, status: dict[str, Any]) -> None:
    """Let an attempt's pod fail, and its job with it."""
    name = f"{run.run_id}-{stage}-{attempt}"
    job = cluster.objects["jobs", name]
    job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}
    labels = job["spec"]["template"]["metadata"]["labels"] | {"batch.kubernetes.io/job-completion-index": "0"}
    cluster.add("pods", {"metadata": {"name": f"{name}-0-abcde", "labels": labels}, "spec": {}, "status": status})


@pytest.mark.parametrize("stage", POLLS)
@pytest.mark.parametrize("status", [EVICTED, GONE], ids=["evicted", "killed"])
def test_a_small_job_whose_pod_is_lost_is_started_again(
    cluster: FakeKubernetesApi, stage: Stage, status: dict[str, Any]
) -> None:
    poll = POLLS[stage]
    assert (poll(1)["finished"], poll(1)["attempt"]) == (False, 1)
    fail(cluster, RUN, stage, 1, status)
    for _repeated in range(2):
        answer = poll(1)
        assert (answer["finished"], answer["attempt"]) == (False, 2)
    assert cluster.names("jobs") == [f"{RUN.run_id}-{stage}-1"]
    assert poll(2)["attempt"] == 2
    assert cluster.names("jobs") == [f"{RUN.run_id}-{stage}-1", f"{RUN.run_id}-{stage}-2"]


@pytest.mark.parametrize("stage", POLLS)
def test_its_last_attempt_fails_the_run(cluster: FakeKubernetesApi, stage: Stage) -> None:
    poll = POLLS[stage]
    poll(MAX_ATTEMPTS)
    fail(cluster, RUN, stage, MAX_ATTEMPTS, EVICTED)
    with pytest.raises(JobEvicted):
        poll(MAX_ATTEMPTS)


@pytest.mark.parametrize("stage", [Stage.STAGE, Stage.PUBLISH])
def test_what_another_attempt_cannot_help_fails_the_run_at_once(cluster: FakeKubernetesApi, stage: Stage) -> None:
    POLLS[stage](1)
    fail(cluster, RUN, stage, 1, WRONG)
    with pytest.raises(DatasetNotFound):
        POLLS[stage](1)


def test_a_probe_whose_image_is_at_fault_is_a_problem_at_once(cluster: FakeKubernetesApi) -> None:
    poll_preflight(1)
    says = {"exitCode": 1, "reason": "Error", "message": "ModuleNotFoundError: No module named 'trainer'"}
    status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": says}}]}
    fail(cluster, RUN, Stage.PREFLIGHT, 1, status)
    with pytest.raises(PreflightFailed, match="trainer"):
        poll_preflight(1)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (NodeLost, True),
        (JobEvicted, True),
        (RemoteUnavailable, True),
        (StorageUnavailable, True),
        (WorkerFailed, True),
        (ScriptFailed, False),
        (DatasetNotFound, False),
        (ClusterUnavailable, False),
    ],
)
def test_the_failure_table_decides(error: type[TrainflowError], again: bool) -> None:
    if again:
        assert [attempt_after(error("x"), attempt) for attempt in (1, 2)] == [2, 3]
    else:
        with pytest.raises(error):
            attempt_after(error("x"), 1)
