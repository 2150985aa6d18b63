"""People are told once of each restart and failure: what happened, what was done, what they can do, and where to
look."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from lambdas.handlers import notify
from lambdas.logic.jobs import job_of
from tests.fakes.runs import STARTED_AT, run_of
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, Aws
from trainflow.failures.judgement import Judgement, to_text
from trainflow.workflow.run import MetricsCursor, Stage
from trainflow.workflow.run_record import RunRecord, RunStatus, SavedCheckpoint
from trainflow.workflow.run_table import row_of

RUN = run_of()
LOST = "Pod 'x-1' on node 'ip-10-0-0-7' failed: its node is gone."
JUDGED = to_text(LOST, Judgement(rule="node lost", pod="x-1", node="ip-10-0-0-7"))


def tell(
    stage: Stage = Stage.TRAINING,
    *,
    attempt: int = 1,
    avoided: tuple[str, ...] = (),
    error: str = "NodeLost",
    refuted: tuple[str, ...] = (),
) -> None:
    """As state `NotifyRestart` does."""
    event: dict[str, Any] = {
        "run_id": RUN.run_id,
        "execution_arn": RUN.execution_arn,
        "status": "RUNNING",
        "error": {"Error": error, "Cause": json.dumps({"errorMessage": JUDGED, "errorType": error})},
        "job": job_of(RUN, stage, attempt, artifacts_url="s3://a/").ref.model_dump(mode="json"),
        "next_attempt": attempt + 1,
        "avoided_nodes": avoided,
        "refuted_test_nodes": refuted,
        "progress": MetricsCursor(last_step=40).model_dump(mode="json"),
        "folder": f"s3://artifacts/runs/{RUN.run_id}/",
    }
    notify.lambda_handler(event, CONTEXT)


def test_a_restart_says_what_happened_what_was_done_and_where_to_look(aws: Aws) -> None:
    aws.table.begin(row_of(RUN))
    tell()
    ((subject, text),) = aws.messages
    assert subject == f"Trainflow: {RUN.run_id} restarts: NodeLost"
    lines = text.splitlines()
    assert f"What happened: the job '{RUN.run_id}-training-1' failed with NodeLost: {LOST}" in lines
    assert "Judged by: node lost" in lines
    assert (
        "What was done: the job was deleted and is submitted again, as attempt 2. No checkpoint of the run is known. "
        "Without one, it begins at its first step." in lines
    )
    assert any(line.startswith("What to do: nothing now. If it fails in the same way again: ") for line in lines)
    assert {"Steps: 40", f"Last lines: s3://artifacts/runs/{RUN.run_id}/logs/"} <= set(lines)
    assert f"Its ARN: {RUN.execution_arn}" in lines
    row = aws.table.find(RUN.run_id)
    assert row is not None
    assert row.ended_at is None, "the run goes on"


def test_a_node_that_is_avoided_from_now_on_is_named_with_what_to_do(aws: Aws) -> None:
    tell(avoided=("ip-10-0-0-3", "ip-10-0-0-7"))
    ((_, text),) = aws.messages
    assert "The run does not use the node ip-10-0-0-7 any more." in text
    assert "What to do: examine the node ip-10-0-0-7. If" in text
    assert "ip-10-0-0-3" not in text, "of that one an earlier message has told"


def test_a_node_that_may_not_be_the_reason_is_used_again_where_there_is_no_other(aws: Aws) -> None:
    tell(avoided=("ip-10-0-0-7",), error="WorkerFailed")
    ((_, text),) = aws.messages
    assert "does not use the node ip-10-0-0-7 any more, unless the node group has no room for another." in text


def test_a_test_that_fails_wherever_it_runs_is_said_to_do_so_with_the_way_out(aws: Aws) -> None:
    tell(error="NodeUnhealthy", refuted=("ip-10-0-0-3", "ip-10-0-0-7"))
    tell(attempt=2, error="WorkerFailed", refuted=("ip-10-0-0-3", "ip-10-0-0-7"))
    (_, text), (_, later) = aws.messages
    assert (
        "The test of the nodes fails wherever it runs: in attempts in a row it found ip-10-0-0-3 and ip-10-0-0-7 "
        "unhealthy. The run goes on without the test, and uses the nodes again that only the test had named." in text
    )
    assert "`compute.check_nodes: false` trains without the test" in text
    assert "wherever it runs" not in later


def test_a_node_that_only_the_test_named_is_used_again_where_there_is_no_other(aws: Aws) -> None:
    tell(avoided=("ip-10-0-0-7",), error="NodeUnhealthy")
    ((_, text),) = aws.messages
    assert "does not use the node ip-10-0-0-7 any more, unless the node group has no room for another." in text


def test_each_restart_has_one_message_however_often_the_function_is_repeated(aws: Aws) -> None:
    for stage, attempt in ((Stage.PRECOMPILE, 1), (Stage.TRAINING, 1), (Stage.TRAINING, 2)):
        for _ in range(3):
            tell(stage, attempt=attempt)
    assert len(aws.messages) == 3


def test_a_compilation_has_no_checkpoint(aws: Aws) -> None:
    tell(Stage.PRECOMPILE)
    ((_, text),) = aws.messages
    assert "checkpoint" not in text.split("What to do")[0]


FOLDER = f"s3://artifacts/runs/{RUN.run_id}/"


@pytest.mark.parametrize(
    ("tear_down", "done"),
    [(True, "its jobs are deleted and its nodes released; "), (False, "pods and nodes stay, as the spec's teardown")],
)
def test_a_failure_says_what_happened_what_was_done_what_to_do_and_where_to_look(
    aws: Aws, tear_down: bool, done: str
) -> None:
    event = failure() | {"progress": MetricsCursor(last_step=40).model_dump(mode="json"), "tear_down": tear_down}
    notify.lambda_handler(event, CONTEXT)
    ((subject, text),) = aws.messages
    assert subject == f"Trainflow: {RUN.run_id} FAILED: NodeLost"
    lines = text.splitlines()
    assert f"What happened: {LOST}" in lines
    assert any(line.startswith(f"What was done: {done}") for line in lines)
    assert any(line.startswith("What to do: ") and " RUN" not in line for line in lines)
    assert {f"Last lines: {FOLDER}logs/", f"Logs: trainflow logs {RUN.run_id} --pod x-1"} <= set(lines)
    assert any(line.startswith("Report: https://") for line in lines)


def test_a_refused_spec_has_no_jobs_and_no_logs(aws: Aws) -> None:
    notify.lambda_handler(failure(), CONTEXT)
    ((_, text),) = aws.messages
    assert "What was done" not in text and "ogs" not in text


def failure() -> dict[str, Any]:
    """As states `NotifyFailure` and `NotifyRejection` have in common."""
    return {
        "run_id": RUN.run_id,
        "execution_arn": RUN.execution_arn,
        "status": "FAILED",
        "error": {"Error": "NodeLost", "Cause": json.dumps({"errorMessage": JUDGED, "errorType": "NodeLost"})},
        "folder": FOLDER,
    }


def test_a_failure_has_duration_and_restarts_of_the_record_that_was_written(aws: Aws) -> None:
    record = RunRecord(
        run_id=RUN.run_id,
        status=RunStatus.FAILED,
        spec={},
        started_at=STARTED_AT,
        ended_at=STARTED_AT + timedelta(minutes=95),
        checkpoints=[SavedCheckpoint(step=30)],
    )
    aws.client("s3").put_object(
        Bucket=ARTIFACT_BUCKET, Key=f"runs/{RUN.run_id}/run.json", Body=record.model_dump_json().encode()
    )
    notify.lambda_handler(failure(), CONTEXT)
    ((_, text),) = aws.messages
    assert "Duration: 1 h 35 min" in text
    assert f"To continue from the checkpoint of step 30: trainflow resume {RUN.run_id}" in text


@pytest.mark.parametrize("content", [b"{}", b"not JSON", None])
def test_a_record_that_cannot_be_read_keeps_no_message_back(aws: Aws, content: bytes | None) -> None:
    if content is not None:
        aws.client("s3").put_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{RUN.run_id}/run.json", Body=content)
    notify.lambda_handler(failure(), CONTEXT)
    ((_, text),) = aws.messages
    assert "Duration" not in text and "resume" not in text
