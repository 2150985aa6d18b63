"""How long a job is watched that cannot be polled, and what its owner is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.handlers import notify, poll_job, submit_job
from lambdas.logic.departures import PodEvidence
from lambdas.logic.gang_failures import failure
from lambdas.logic.unreachable import long_run_ends, report_unreachable_at, timestamp, unreachable_deadline
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, Aws
from trainflow.errors import JobStalled, WorkerFailed
from trainflow.failures.error_table import error_list
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.protocol import result
from trainflow.workflow.run import JobRef, MetricsCursor, Run, Spending, Stage

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def test_a_job_is_watched_until_its_own_time_limit_has_passed() -> None:
    run = run_of(spec_with(limits={"blind_minutes": 10, "gang_timeout_minutes": 30, "max_duration_hours": 2}))
    assert report_unreachable_at(run.spec.limits, now=NOW) == NOW + timedelta(minutes=10)
    end = unreachable_deadline(run, Spending(), submitted_at=NOW)
    assert (end.at, end.limit) == (NOW + timedelta(hours=2, minutes=30 + 15), None)


def test_a_job_has_run_for_long_six_hours_after_the_last_moment_at_which_it_may_have_begun_or_hung() -> None:
    limits = run_of(spec_with(limits={"gang_timeout_minutes": 90, "stall_minutes": 30})).spec.limits
    assert long_run_ends(limits, submitted_at=NOW) == NOW + timedelta(hours=8)


@pytest.mark.usefixtures("aws")
def test_the_same_moment_is_told_for_every_try_of_a_submission(cluster: FakeKubernetesApi) -> None:
    run, at = run_of(), NOW
    event = {"run": run.model_dump(mode="json"), "stage": "training", "attempt": 1, "cache": None}
    answers = [submit_job.lambda_handler({**event, "submitted_at": timestamp(at)}, CONTEXT) for _ in range(2)]
    assert {answer["long_run_ends"] for answer in answers} == {
        timestamp(long_run_ends(run.spec.limits, submitted_at=at))
    }


def test_times_are_written_as_step_functions_compares_them() -> None:
    assert timestamp(NOW + timedelta(microseconds=123_456)) == "2026-11-23T12:00:00.123Z"


def submitted(run: Run) -> dict[str, Any]:
    event = {"run": run.model_dump(mode="json"), "stage": "training", "attempt": 1, "cache": None}
    event["submitted_at"] = timestamp(datetime.now(UTC))
    return submit_job.lambda_handler(event, CONTEXT)


def poll(run: Run, job: Any, **fields: Any) -> dict[str, Any]:
    progress = MetricsCursor(last_step=7, progressed_at=NOW - timedelta(days=9)).model_dump(mode="json")
    event = {"run": run.model_dump(mode="json"), "job": job, "progress": progress, "phase": "running"}
    return poll_job.lambda_handler(event | fields, CONTEXT)


@pytest.mark.usefixtures("aws")
def test_a_job_is_not_stalled_while_its_log_cannot_be_read(cluster: FakeKubernetesApi) -> None:
    run = run_of(spec_with(limits__stall_minutes=60))
    job = submitted(run)["job"]
    (found,) = (each for each in cluster.objects.values() if each["kind"] == "Job")
    found["status"] = {"active": 2, "ready": 2, "startTime": (NOW - timedelta(days=10)).isoformat()}
    with pytest.raises(JobStalled):
        poll(run, job)
    answer = poll(run, job, log_unread=True)
    assert (answer["phase"], answer["blind_after"] > timestamp(datetime.now(UTC))) == ("running", True)


@pytest.mark.usefixtures("aws")
def test_a_job_that_has_succeeded_is_not_stalled_however_long_ago_its_last_step_was(
    cluster: FakeKubernetesApi,
) -> None:
    """For example one that evaluates, or saves its last checkpoint, for longer than `limits.stall_minutes`."""
    run = run_of(spec_with(limits__stall_minutes=60))
    job = submitted(run)["job"]
    (found,) = (each for each in cluster.objects.values() if each["kind"] == "Job")
    found["status"] = {"active": 2, "ready": 2, "startTime": (NOW - timedelta(days=10)).isoformat()}
    with pytest.raises(JobStalled):
        poll(run, job)
    found["status"] |= {"active": 0, "ready": 0, "conditions": [{"type": "Complete", "status": "True"}]}
    assert poll(run, job)["phase"] == "succeeded"


def told(run: Run, **fields: Any) -> dict[str, Any]:
    job = JobRef(name=f"{run.run_id}-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=2)
    cause = '{"errorType": "ClusterUnavailable", "errorMessage": "The Kubernetes API answered 503."}'
    event: dict[str, Any] = {
        "run_id": run.run_id,
        "execution_arn": run.execution_arn,
        "status": "RUNNING",
        "error": {"Error": "ClusterUnavailable", "Cause": cause},
        "job": job.model_dump(mode="json"),
        "ends_by": "2026-11-26T12:45:00.000Z",
        "blind_after": "2026-11-23T13:00:00.000Z",
    }
    return notify.lambda_handler(event | fields, CONTEXT)


def test_the_owner_is_told_once_what_happened_what_was_done_and_what_to_do(aws: Aws) -> None:
    run = run_of()
    for _ in range(2):
        told(run)
    ((subject, message),) = aws.messages
    assert subject == f"Trainflow: {run.run_id} cannot be seen"
    what, done, do = message.splitlines()[1:4]
    assert what == (
        f"What happened: the job '{run.run_id}-training-1' cannot be polled: The Kubernetes API answered 503."
    )
    assert done.startswith("What was done: nothing was stopped. The job trains on, until 2026-11-26 12:45 UTC at most.")
    assert do.startswith("What to do: Check that the cluster is ACTIVE")
    told(run, blind_after="2026-11-24T13:00:00.000Z")
    assert len(aws.messages) == 2, "the job could be seen in between"
    next_attempt = JobRef(name=f"{run.run_id}-training-2", stage=Stage.TRAINING, attempt=2, num_nodes=2)
    told(run, job=next_attempt.model_dump(mode="json"))
    assert len(aws.messages) == 3, "the next attempt's job is another one"


def test_the_end_of_a_run_is_told_once_however_often_the_function_is_repeated(aws: Aws) -> None:
    run = run_of()
    event = {"run_id": run.run_id, "execution_arn": run.execution_arn, "status": "SUCCEEDED"}
    for _ in range(3):
        notify.lambda_handler(dict(event), CONTEXT)
    notify.lambda_handler({**event, "execution_arn": f"{run.execution_arn}-again"}, CONTEXT)
    assert len(aws.messages) == 2


@pytest.mark.parametrize("error", error_list("unavailable"))
def test_a_programs_word_for_an_outage_is_none_of_the_functions(error: str) -> None:
    """Otherwise a failed job would count as one that cannot be seen."""
    message = result.to_bytes(result.failure(error, "I say so.")).decode()
    pod = Pod(name="pod", node="node", exit_code=1, termination_message=message)
    job = JobRef(name="bert-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=2)
    found = failure(job, JobStatus(phase=None), [PodEvidence(pod=pod)], last_step=3)
    assert isinstance(found, WorkerFailed)
