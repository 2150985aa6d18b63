"""The log of a failed pod is fetched once: the poll that judges it keeps it for the states that follow."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.gateways import objects
from lambdas.handlers import collect_diagnostics, poll_job, publish_metrics, tear_down
from lambdas.handlers.last_lines import kept_log
from lambdas.logic.jobs import Job
from tests.fakes.kubernetes_api import Answer, FakeKubernetesApi
from tests.fakes.runs import run_on
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, Aws
from tests.unit.lambdas.test_backends import stored, submit, training
from tests.unit.lambdas.test_lost_nodes import node, pod_on
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.deployment.kubernetes_names import JOB_LABEL, RUN_LABEL
from trainflow.errors import ScriptFailed
from trainflow.workflow.run import Run

POD = "pod-on-well"


@pytest.fixture
def fetched(cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods whose logs are asked for."""
    asked: list[str] = []
    answer = cluster.call_api

    def call_api(path: str, method: str, **options: Any) -> Answer:
        if path.endswith("/log"):
            asked.append(path.split("/")[-2])
        return answer(path, method, **options)

    monkeypatch.setattr(cluster, "call_api", call_api)
    return asked


@pytest.fixture
def failed(aws: Aws, cluster: FakeKubernetesApi) -> tuple[Run, Job]:
    """A run of which a job has failed, with one failed pod."""
    run = run_on("job")
    aws.add_nodegroup(run.spec.compute.instance_type, desired=2)
    job = training(run)
    submit(job)
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "has failed"}
    stored(cluster, job)["status"] = {"failed": 1, "conditions": [condition]}
    pod = pod_on("well", phase="Failed", exit_code=1)
    rank0 = KUBERNETES_KINDS["job"].rank0
    pod["metadata"]["labels"] = {JOB_LABEL: job.ref.name, RUN_LABEL: run.run_id, **rank0}
    cluster.add("pods", pod)
    cluster.add("nodes", node("well"))
    cluster.logs[POD] = "2026-11-23T12:00:00Z ValueError: no flux\n"
    return run, job


def poll(run: Run, job: Job) -> None:
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": {}}
    with pytest.raises(ScriptFailed, match="no flux"):
        poll_job.lambda_handler(event, CONTEXT)


@pytest.mark.parametrize(
    ("published", "printed", "named"), [(0, 4, 4), (2, 4, 4), (4, 4, 4), (2, 90, 90), (0, 0, None)]
)
@pytest.mark.parametrize("line", ["step {step} loss 0.5", "{{'loss': 0.5, 'epoch': 0.1}}"])
def test_a_failure_names_the_last_step_that_was_logged_and_not_the_last_that_was_published(
    aws: Aws, failed: tuple[Run, Job], cluster: FakeKubernetesApi, published: int, printed: int, named: int, line: str
) -> None:
    run, job = failed
    steps = [
        f"2026-11-23T12:{step // 60:02}:{step % 60:02}Z {line.format(step=step)}\n" for step in range(1, printed + 1)
    ]
    cluster.logs[POD] = "".join(steps[:published])
    seen = {"run": run.model_dump(mode="json"), "rank0": POD, "cursor": {}}
    cursor = publish_metrics.lambda_handler(seen, CONTEXT)["cursor"]
    cluster.logs[POD] = "".join(steps) + "2026-11-23T12:59:00Z ValueError: no flux\n"
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": cursor}
    with pytest.raises(ScriptFailed) as error:
        poll_job.lambda_handler(event, CONTEXT)
    if named is None:
        assert "after step" not in str(error.value)
    else:
        assert f" after step {named}: ValueError: no flux" in str(error.value)


def collected(run: Run) -> list[dict[str, Any]]:
    event = {"run": run.model_dump(mode="json"), "error": {"Error": "ScriptFailed", "Cause": "{}"}}
    diagnoses: list[dict[str, Any]] = collect_diagnostics.lambda_handler(event, CONTEXT)["diagnostics"]
    return diagnoses


def test_the_poll_the_diagnostics_and_the_tear_down_fetch_a_failed_log_once(
    aws: Aws, failed: tuple[Run, Job], fetched: list[str]
) -> None:
    run, job = failed
    poll(run, job)
    assert [found["last_lines"] for found in collected(run)] == [["ValueError: no flux"]]
    tear_down.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    assert fetched == [POD]
    kept = aws.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{run.run_id}/logs/{POD}.log")["Body"].read()
    assert kept.decode() == "2026-11-23T12:00:00+00:00 ValueError: no flux\n"


@pytest.mark.usefixtures("aws")
def test_a_poll_that_is_repeated_judges_the_whole_log_again(
    failed: tuple[Run, Job], cluster: FakeKubernetesApi
) -> None:
    run, job = failed
    later = [f"closing worker {number}" for number in range(1500)]  # more than the copy holds, fewer than are judged
    lines = ["Traceback (most recent call last):", '  File "train.py", line 1', "ValueError: no flux", *later]
    cluster.logs[POD] = "".join(f"2026-11-23T12:00:00Z {line}\n" for line in lines)
    poll(run, job)
    poll(run, job)


@pytest.mark.usefixtures("aws")
def test_the_copy_of_a_log_that_may_grow_is_replaced_and_not_read(
    cluster: FakeKubernetesApi, failed: tuple[Run, Job], fetched: list[str]
) -> None:
    run, _ = failed
    del cluster.objects["pods", POD]["status"]["containerStatuses"][0]["state"]
    event = {"run": run.model_dump(mode="json"), "stopping_since": run.started_at.isoformat()}
    tear_down.lambda_handler(event, CONTEXT)
    assert kept_log(run.run_id, POD) == ()
    assert [found["last_lines"] for found in collected(run)] == [["ValueError: no flux"]]
    assert fetched.count(POD) == 2


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("refused", ["head", "read", "write"])
def test_a_bucket_that_refuses_hides_neither_the_failure_nor_the_log(
    failed: tuple[Run, Job], fetched: list[str], monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    run, job = failed

    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise ClientError({"Error": {"Code": "SlowDown", "Message": "later"}}, "S3")

    with monkeypatch.context() as patch:
        patch.setattr(objects, refused, refuse)
        poll(run, job)
    assert [found["last_lines"] for found in collected(run)] == [["ValueError: no flux"]]
    assert fetched.count(POD) == (2 if refused == "write" else 1)


@pytest.mark.usefixtures("aws")
def test_what_a_copy_holds_is_what_was_logged(failed: tuple[Run, Job], cluster: FakeKubernetesApi) -> None:
    run, job = failed
    lines = [f"line {number}  with spaces " for number in range(1500)] + ["ValueError: no flux é€"]
    cluster.logs[POD] = "".join(f"2026-11-23T12:00:00Z {line}\n" for line in lines)
    poll(run, job)
    assert kept_log(run.run_id, POD) == tuple(lines[-1000:])
    assert collected(run)[0]["last_lines"] == lines[-5:]
