from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from recorded_runs import recorded

from trainflow.client.files import read_record, write_record
from trainflow.record.build import overhead_by_state
from trainflow.record.history import ExecutionHistory
from trainflow.record.run_states import state_of_record
from trainflow.record.steps import kept_steps_of
from trainflow.workflow.run import MetricsCursor
from trainflow.workflow.run_record import Compilation, MetricsPublished, RunError, RunStatus, Training


def test_the_record_of_a_succeeded_run() -> None:
    run = recorded("succeeded")

    record = run.record()

    assert (record.status, record.error) == (RunStatus.SUCCEEDED, None)
    assert (record.started_at, record.ended_at) == (run.history.events[0]["timestamp"], run.end)
    assert record.spec["name"] == "demo"
    assert [execution.events for execution in record.executions] == [141, 160, 363]
    assert record.executions[0].state_machine == "trainflow-training"
    assert record.compile == Compilation(graphs=1, succeeded=1, failed=0, cache="miss")
    assert record.training == Training(
        steps=200,
        first_loss=9.2211,
        last_loss=6.3264,
        sequences_per_second=118.6,
        speeds={"sequences": 118.6},
        checkpoint="s3://trainflow-artifacts/runs/demo-3f2a9c1b4d5e/checkpoints/step-200.pt",
    )
    assert record.metrics_published is not None
    assert (record.metrics_published.gaps, record.metrics_published.duplicates) == (0, 0)


def test_log_rotations_that_publish_metrics_counted_are_in_the_record() -> None:
    run = recorded("succeeded")
    kept = kept_steps_of(run.lines)
    rotated = replace(kept, progress=kept.progress.model_copy(update={"log_rotations": 2}))
    records = run.record(), run.record(kept=rotated)
    assert [record.metrics_published and record.metrics_published.log_rotations for record in records] == [0, 2]


def test_lines_that_could_not_be_read_are_in_the_record_its_warnings_and_the_state_as_json() -> None:
    run = recorded("succeeded")
    kept = kept_steps_of(run.lines)
    unread = replace(kept, progress=kept.progress.model_copy(update={"lines_unparsable": 2}))
    record = run.record(kept=unread)
    assert record.metrics_published is not None
    assert record.metrics_published.unparsable_lines == 2
    (warning,) = state_of_record(record).warnings
    assert warning.startswith("2 lines of rank 0's log look like a step's and cannot be read")


def test_a_run_without_a_step_has_the_count_of_lines_that_could_not_be_read() -> None:
    kept = replace(kept_steps_of([]), progress=MetricsCursor(lines_unparsable=1))
    published = recorded("succeeded").record(published=None, kept=kept).metrics_published
    assert published == MetricsPublished(datapoints=0, unparsable_lines=1)


def test_steps_without_a_loss_are_passed_over_for_the_first_and_the_last_one() -> None:
    run = recorded("succeeded")
    kept = kept_steps_of(run.lines)
    first, *others, last = kept.steps
    without = replace(kept, steps=(replace(first, loss=None), *others, replace(last, loss=None)))
    training = run.record(kept=without).training
    assert training is not None
    assert (training.first_loss, training.last_loss) == (others[0].loss, others[-1].loss)


def test_states_of_the_run_and_its_windows_come_in_the_order_of_entering() -> None:
    states = recorded("succeeded").record().states

    assert states == sorted(states, key=lambda visit: visit.entered_at)
    assert {visit.execution for visit in states} == {
        "demo-3f2a9c1b4d5e",
        "demo-3f2a9c1b4d5e-precompile-1-1",
        "demo-3f2a9c1b4d5e-training-1-1",
    }


def test_overhead_is_the_time_without_a_running_pod() -> None:
    """Pods ran from 6 to 10, 13 to 52, 57 to 124 and 128 to 130 seconds after the start."""
    run = recorded("succeeded")
    record = run.record()
    assert record.ended_at is not None

    wall = (record.ended_at - record.started_at).total_seconds()

    assert record.overhead_seconds == pytest.approx(wall - (4 + 39 + 67 + 2), abs=0.001)


@pytest.mark.parametrize("name", ["succeeded", "worker_failed", "rejected", "aborted"])
def test_the_overhead_of_the_states_makes_the_whole(name: str) -> None:
    record = recorded(name).record()

    assert sum(overhead_by_state(record).values()) == pytest.approx(record.overhead_seconds, abs=0.01)


def test_the_record_of_a_failed_run_names_the_error_and_keeps_the_diagnostics() -> None:
    record = recorded("worker_failed").record()

    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.name == "WorkerFailed"
    assert [finding["pod"] for finding in record.diagnostics] == ["demo-9b0e77d2c41a-training-1-1-q9d4w"]
    assert record.training is not None
    assert (record.training.steps, record.training.checkpoint) == (61, None)


def test_a_rejected_run_has_no_jobs_and_no_training() -> None:
    record = recorded("rejected").record()

    assert (record.jobs, record.compile, record.training, record.metrics_published) == ({}, None, None, None)


def test_a_run_that_was_given_up_is_recorded_as_its_user_left_it() -> None:
    run = recorded("succeeded")
    unfinished = ExecutionHistory(arn=run.history.arn, events=run.history.events[:50])
    stopped = RunError(name="Aborted", message="Stopped from the keyboard.", what_to_do="Start it again.")
    now = unfinished.events[-1]["timestamp"] + timedelta(seconds=1)

    record = run.record(history=unfinished, status=RunStatus.ABORTED, error=stopped, now=now)

    assert (record.status, record.error, record.ended_at) == (RunStatus.ABORTED, stopped, now)


def test_a_run_that_found_its_graphs_compiled_says_so() -> None:
    run = recorded("succeeded")
    found = {"graphs": 6, "succeeded": 6, "failed": 0, "cache": "hit"}
    events = json.loads(json.dumps(run.history.events, default=str).replace('"CheckCompilation"', '"AcquireCache"'))
    for event in events:
        event["timestamp"] = datetime.fromisoformat(event["timestamp"])
        answer = json.loads(event.get("taskSucceededEventDetails", {}).get("output") or "{}")
        if "graphs" in answer.get("Payload", ()):
            answer["Payload"] = {"acquired": True, "compilation": found}
            event["taskSucceededEventDetails"]["output"] = json.dumps(answer)

    record = run.record(history=ExecutionHistory(arn=run.history.arn, events=tuple(events)))

    assert record.compile is not None
    assert record.compile.model_dump() == found


def test_a_run_of_which_nothing_is_known_yet_has_a_record() -> None:
    run = recorded("aborted")
    nothing = ExecutionHistory(arn=run.history.arn, events=())

    record = run.record(history=nothing)

    assert (record.status, record.states, record.spec) == (RunStatus.RUNNING, [], {})


def test_a_record_comes_back_from_its_file_as_it_went(tmp_path: Path) -> None:
    record = recorded("worker_failed").record()

    path = write_record(record, tmp_path / "out" / "run.json")

    assert read_record(path) == record
    assert [file.name for file in path.parent.iterdir()] == ["run.json"]


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_record(recorded("aborted").record(), tmp_path / "run.json")
    before = path.read_text()

    def refuse(*_: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match=r"No space left on device: '.*run\.json'"):
        write_record(recorded("succeeded").record(), path)

    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]
