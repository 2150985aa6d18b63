"""One shape for every run, and the words around it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.cli.operate.shown import details_text, list_text, table
from trainflow.client.place import RunSummary
from trainflow.client.since import parse_since
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState, recorded_state
from trainflow.observed.step import Step
from trainflow.record.run_states import state_of_record
from trainflow.workflow import run_record
from trainflow.workflow.run_record import Cost, RunError, RunRecord, RunStatus, Training

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def step(number: int, **figures: Any) -> Step:
    unknown = {"epoch": None, "loss": None, "learning_rate": None, "throughput": None}
    return Step(**{"logged_at": NOW, "step": number, **unknown, **figures})


def test_a_run_is_json_with_a_word_for_a_loss_that_is_no_number() -> None:
    run = RunState(
        run_id="a",
        status=RunStatus.RUNNING,
        observed_at=NOW,
        started_at=NOW,
        steps=(step(3, loss=math.nan, metrics={"a": math.inf}),),
    )
    document = json.loads(json.dumps(run.as_json(), allow_nan=False))
    assert document == {
        "version": 1,
        "run_id": "a",
        "status": "RUNNING",
        "owner": {"kind": "unknown", "name": ""},
        "team": None,
        "project": None,
        "started_at": "2026-11-22T12:00:00+00:00",
        "ended_at": None,
        "state": None,
        "step": 3,
        "total_steps": None,
        "loss": "nan",
        "throughput": None,
        "throughput_of": "sequences",
        "metrics": {"a": "inf"},
        "seconds_left": None,
        "cost_usd": None,
        "restarts": [],
        "avoided_nodes": [],
        "pods": [],
        "error": None,
        "warnings": [],
        "trouble": None,
    }


@pytest.mark.parametrize(("last", "word"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_an_ended_run_says_that_its_loss_is_no_number_as_a_running_one_does(last: float, word: str) -> None:
    record = RunRecord(
        run_id="a",
        status=RunStatus.FAILED,
        spec={},
        started_at=NOW,
        training=Training(steps=3, first_loss=8.8, last_loss=last),
    )
    stored = record.model_dump_json()
    assert json.loads(stored)["training"]["last_loss"] == word
    assert repr(RunRecord.model_validate_json(stored).training) == repr(record.training)
    shown = recorded_state(json.loads(stored)).as_json()
    assert (shown["loss"], state_of_record(record).as_json()["loss"]) == (word, word)


def test_the_schema_of_records_takes_a_loss_that_is_no_number() -> None:
    schema = json.loads((Path(__file__).parents[3] / "config/run-record.schema.json").read_text())
    training = {"$defs": schema["$defs"], "$ref": "#/$defs/Training"}
    for loss in (1.5, "nan", "inf", "-inf", None):
        jsonschema.validate({"steps": 3, "last_loss": loss}, training)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"steps": 3, "last_loss": "high"}, training)


def test_a_run_is_shown_by_what_is_known_of_it() -> None:
    run = RunState(
        run_id="a",
        status=RunStatus.FAILED,
        observed_at=NOW,
        started_at=NOW - timedelta(hours=3),
        ended_at=NOW,
        steps=(step(10, loss=2.5, throughput=1234.5),),
        total_steps=20,
        cost=Cost(usd=12.3, node_hours=3.0, region="us-west-2"),
        pods=(Pod(name="a-0", stage="training", phase="Failed", node="n", end_reason="OOMKilled", exit_code=137),),
        error=RunError(name="TrainingFailed", message="Rank 0 ended.", what_to_do="Read its log."),
        warnings=("No line was understood.",),
    )
    assert details_text(run, NOW).splitlines() == [
        "run       a",
        "status    Failed: TrainingFailed",
        "started   2026-11-22 09:00 UTC",
        "duration  3 h 00 min",
        "step      10/20, loss 2.5, 1,234 sequences/s",
        "cost      about 12.30 USD at on-demand prices",
        "error     TrainingFailed: Rank 0 ended.",
        "to do     Read its log.",
        "warning   No line was understood.",
        "",
        "POD  LAST PHASE  NODE",
        "a-0  Failed      n     OOMKilled exit code 137",
    ]


def test_a_speed_has_the_unit_of_the_program() -> None:
    run = RunState(
        run_id="a",
        status=RunStatus.RUNNING,
        observed_at=NOW,
        started_at=NOW,
        steps=(step(3, metrics={"images_per_second": 812.25}),),
    )
    assert "step      3, 812.2 images/s, 0 s ago" in details_text(run, NOW).splitlines()


def test_a_run_that_has_printed_no_step_yet_says_so() -> None:
    run = RunState(
        run_id="a", status=RunStatus.RUNNING, observed_at=NOW, started_at=NOW, state="WatchTraining", total_steps=20
    )
    assert "step      none yet" in details_text(run, NOW).splitlines()


def test_a_run_that_has_ended_without_a_step_says_so() -> None:
    record = RunRecord(
        run_id="a", status=RunStatus.FAILED, spec={}, started_at=NOW, ended_at=NOW, training=Training(steps=0)
    )
    run = state_of_record(record)
    assert run.as_json()["step"] is None
    assert "step      none" in details_text(run, NOW).splitlines()


def test_a_record_does_not_contain_the_attempt_of_a_pod() -> None:
    failed = run_record.Pod(name="a-training-1-0", node="n", phase="Failed", exit_code=1, message="no room")
    job = run_record.Job(name="a-training-2", attempts=2, phase="Failed", pods=[failed], rank0=failed.name)
    record = RunRecord(run_id="a", status=RunStatus.FAILED, spec={}, started_at=NOW, jobs={"training": job})
    (pod,) = state_of_record(record).as_json()["pods"]
    assert pod == {
        "name": "a-training-1-0",
        "stage": "training",
        "phase": "Failed",
        "node": "n",
        "attempt": None,
        "reason": None,
        "exit_code": 1,
        "message": "no room",
    }


def test_the_list_is_a_table() -> None:
    run = RunSummary(run_id="a", status=RunStatus.RUNNING, started_at=NOW - timedelta(minutes=5))
    assert list_text([run], NOW) == table(
        ("RUN", "STATUS", "STARTED", "DURATION"), [("a", "RUNNING", "5 min 00 s ago", "5 min 00 s")]
    )


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("10m", NOW - timedelta(minutes=10)),
        ("2h", NOW - timedelta(hours=2)),
        ("1d", NOW - timedelta(days=1)),
        ("2026-11-22T08:00", datetime(2026, 11, 22, 8, tzinfo=UTC)),
        ("2026-11-22T08:00+02:00", datetime(2026, 11, 22, 6, tzinfo=UTC)),
    ],
)
def test_since_is_a_duration_or_a_time(text: str, at: datetime) -> None:
    assert parse_since(text, NOW) == at


@given(st.text() | st.from_regex(r"[0-9]{1,12}[smhd]", fullmatch=True))
def test_since_is_a_time_or_a_named_error(text: str) -> None:
    try:
        assert parse_since(text, NOW).tzinfo is not None
    except ValueError as error:
        assert "must be a duration such as 10m" in str(error)
