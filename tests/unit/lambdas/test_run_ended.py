"""The event about the end of a run is small and is JSON, whatever the record holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from trainflow.workflow.run_ended import MAX_TEXT_LENGTH, RunEnded, run_ended
from trainflow.workflow.run_record import Restart, RunError, RunRecord, RunStatus, Training

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ARN = "arn:aws:states:us-west-2:123456789012:execution:training:bert-0123456789ab"


def event(**fields: Any) -> RunEnded:
    record = RunRecord(
        **{"run_id": "bert-0123456789ab", "status": RunStatus.FAILED, "spec": {}, "started_at": NOW, **fields}
    )
    return run_ended(record, deployment="trainflow", execution_arn=ARN, folder="s3://artifacts/runs/bert/", now=NOW)


def test_a_refused_run_is_an_event_too() -> None:
    error = RunError(name="InvalidRunSpec", message="name: is missing.", what_to_do="Correct the named field.")
    assert event(error=error).model_dump(mode="json", exclude_none=True) == {
        "schema_version": 1,
        "deployment": "trainflow",
        "run_id": "bert-0123456789ab",
        "owner": {"kind": "unknown", "name": ""},
        "status": "FAILED",
        "started_at": "2026-11-21T12:00:00Z",
        "ended_at": "2026-11-21T12:00:00Z",
        "error": {"name": "InvalidRunSpec", "message": "name: is missing.", "what_to_do": "Correct the named field."},
        "non_finite_steps": 0,
        "restarts": 0,
        "execution_arn": ARN,
        "folder": "s3://artifacts/runs/bert/",
        "report_link": "https://us-west-2.console.aws.amazon.com/s3/object/artifacts?region=us-west-2"
        "&prefix=runs%2Fbert%2Freport.html",
        "execution_link": f"https://us-west-2.console.aws.amazon.com/states/home?region=us-west-2#/v2/executions/details/{ARN}",
    }


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_is_null(loss: float) -> None:
    ended = event(training=Training(steps=7, last_loss=loss, non_finite_steps=3, first_non_finite_step=5))
    assert (ended.last_loss, ended.non_finite_steps, ended.steps) == (None, 3, 7)
    assert json.loads(ended.model_dump_json())["last_loss"] is None


def test_an_event_stays_below_eventbridges_limit() -> None:
    error = RunError(name="WorkerFailed", message="x" * 10**6, what_to_do="y" * 10**6)
    restart = Restart(stage="training", attempt=1, at=NOW, error="WorkerFailed", message="z" * 10**6)
    text = event(error=error, restarts=[restart] * 100).model_dump_json()
    assert len(text.encode()) < 2 * MAX_TEXT_LENGTH + 2000 < 256 * 1024
