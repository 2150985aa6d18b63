"""`WriteRecord`, and what it reads of Step Functions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.gateways import executions
from lambdas.handlers import recording, write_record
from tests.fakes.runs import run_of
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, Aws
from trainflow.links import execution_link, object_link
from trainflow.record.history import ExecutionHistory
from trainflow.workflow.run_record import RunRecord, RunStatus
from trainflow.workflow.run_table import row_of

RUN = run_of()
START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def write(**fields: Any) -> dict[str, Any]:
    event = {"name": RUN.run_id, "execution_arn": RUN.execution_arn, "status": "SUCCEEDED", **fields}
    return write_record.lambda_handler(event, CONTEXT)


def record(aws: Aws) -> RunRecord:
    found = aws.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{RUN.run_id}/run.json")
    return RunRecord.model_validate_json(found["Body"].read())


@pytest.mark.usefixtures("begun_history")
def test_the_record_is_final_though_the_execution_has_a_moment_to_go(aws: Aws) -> None:
    aws.table.begin(row_of(RUN))
    assert write() == {"folder": f"s3://{ARTIFACT_BUCKET}/runs/{RUN.run_id}/", "warnings": []}
    written = record(aws)
    assert (written.status, written.error) == (RunStatus.SUCCEEDED, None)
    assert written.ended_at is not None
    page = aws.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{RUN.run_id}/report.html")
    assert page["ContentType"] == "text/html; charset=utf-8"


@pytest.mark.usefixtures("begun_history")
def test_a_failure_is_recorded_with_the_error_that_was_caught(aws: Aws) -> None:
    cause = json.dumps({"errorMessage": "Pod 'x' died.", "errorType": "WorkerFailed"})
    write(status="FAILED", error={"Error": "WorkerFailed", "Cause": cause})
    error = record(aws).error
    assert error is not None
    assert (error.name, error.message) == ("WorkerFailed", "Pod 'x' died.")


@pytest.mark.usefixtures("begun_history")
def test_an_execution_that_was_refused_leaves_the_record_of_the_run_of_its_name_alone(aws: Aws) -> None:
    aws.table.begin(row_of(RUN))
    refused = {"name": RUN.run_id.upper(), "execution_arn": RUN.execution_arn.upper(), "status": "FAILED"}
    assert write(**refused) == {"folder": None, "warnings": []}
    assert write(name="Not_A_Run", execution_arn="arn:x", status="FAILED") == {"folder": None, "warnings": []}
    assert "Contents" not in aws.client("s3").list_objects_v2(Bucket=ARTIFACT_BUCKET)


def windows_of(days: float, *, window_hours: float) -> ExecutionHistory:
    """A parent that has watched a training for so long; each window leaves what Step Functions writes of it."""
    events: list[dict[str, Any]] = [{"type": "ExecutionStarted", "executionStartedEventDetails": {"input": "{}"}}]
    for number in range(round(days * 24 / window_hours)):
        arn = f"{RUN.execution_arn}-training-1-{number}".replace("training:", "watch-job:")
        output = {
            "ExecutionArn": arn,
            "Output": {"outcome": "running", "rank0": "p", "progress": {"last_step": number}},
        }
        details = {"resourceType": "states", "output": json.dumps(output)}
        events += [
            {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": "WatchTraining"}},
            {"type": "TaskScheduled"},
            {"type": "TaskStarted"},
            {"type": "TaskSubmitted", "taskSubmittedEventDetails": details},
            {"type": "TaskSucceeded", "taskSucceededEventDetails": details},
            {"type": "TaskStateExited", "stateExitedEventDetails": {"name": "WatchTraining"}},
            {"type": "ChoiceStateEntered", "stateEnteredEventDetails": {"name": "IsTrainingFinished"}},
            {"type": "ChoiceStateExited", "stateExitedEventDetails": {"name": "IsTrainingFinished"}},
        ]
    numbered = (
        {**event, "id": number, "previousEventId": number - 1, "timestamp": START + timedelta(minutes=number)}
        for number, event in enumerate(events, start=1)
    )
    return ExecutionHistory(arn=RUN.execution_arn, events=tuple(numbered))


@pytest.mark.parametrize(("days", "largest"), [(30, 200_000), (365, 2_000_000)])
def test_the_record_of_a_long_run_stays_small_and_asks_for_few_windows(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, days: int, largest: int
) -> None:
    asked: list[str] = []

    def last_event(arn: str) -> ExecutionHistory:
        asked.append(arn)
        return ExecutionHistory(arn=arn, events=({"id": 17_000, "type": "ExecutionSucceeded", "timestamp": START},))

    monkeypatch.setattr(executions, "history", lambda _: windows_of(days, window_hours=4))
    monkeypatch.setattr(executions, "last_event", last_event)
    write()
    assert len(asked) == min(days * 6, recording.MAX_WINDOWS)
    for name in ("run.json", "report.html"):
        head = aws.client("s3").head_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{RUN.run_id}/{name}")
        assert head["ContentLength"] < largest


@pytest.mark.parametrize(
    ("partition", "region", "host"),
    [
        ("aws", "us-west-2", "us-west-2.console.aws.amazon.com"),
        ("aws-us-gov", "us-gov-west-1", "console.amazonaws-us-gov.com"),
        ("aws-cn", "cn-north-1", "console.amazonaws.cn"),
    ],
)
def test_links_lead_to_the_console_of_the_executions_partition(partition: str, region: str, host: str) -> None:
    arn = f"arn:{partition}:states:{region}:123456789012:execution:training:bert"
    assert execution_link(arn) == f"https://{host}/states/home?region={region}#/v2/executions/details/{arn}"
    assert object_link("s3://bucket/runs/a/run.json", arn) == (
        f"https://{host}/s3/object/bucket?region={region}&prefix=runs%2Fa%2Frun.json"
    )
