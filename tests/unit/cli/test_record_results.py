"""The record says which results a run has lost, and when there is no sign of any."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from recorded_runs import recorded

from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.protocol.lost_files import LostFile, LostFiles
from trainflow.record.results import NOTHING_TRAINED, lost_files_warning, result_warnings
from trainflow.record.steps import KeptSteps, kept_steps_from_json, kept_steps_of
from trainflow.report import render_report
from trainflow.workflow.run import MetricsCursor
from trainflow.workflow.run_record import RunRecord, RunStatus

MODEL = LostFile(name="model.pt", num_bytes=1258291)
ONE = LostFiles(num_files=1, num_bytes=1258291, largest=(MODEL,))
EMPTY = {"objects": 0, "checkpoint": None}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            ONE,
            "1 file (1.2 MiB) that the program wrote to its working folder was not kept: model.pt (1.2 MiB). Write "
            "results below {run_dir}.",
        ),
        (
            LostFiles(
                num_files=1234,
                num_bytes=1 << 30,
                largest=(replace(MODEL, num_nodes=3), LostFile(name="log.txt", num_bytes=7)),
                is_partial=True,
            ),
            "At least 1,234 files (1.0 GiB) that the program wrote to its working folder were not kept: model.pt (1.2 "
            "MiB on 3 nodes), log.txt (7 B), 1,232 more. Write results below {run_dir}.",
        ),
    ],
)
def test_the_warning_names_files_with_their_sizes_and_counts_the_rest(found: LostFiles, sentence: str) -> None:
    assert lost_files_warning(found) == sentence


def test_lost_files_are_in_the_record_its_warnings_and_the_report() -> None:
    kept = kept_steps_of([], lost_files=ONE)
    run = recorded("succeeded")
    record = run.record(kept=kept_steps_from_json(kept.to_json()))
    assert record.lost_files == ONE
    assert lost_files_warning(ONE) in record.warnings
    assert RunRecord.model_validate_json(record.model_dump_json()) == record
    assert "model.pt (1.2 MiB)" in render_report(record, ())


def test_a_success_without_any_sign_of_training_is_warned_about() -> None:
    assert result_warnings(RunStatus.SUCCEEDED, KeptSteps(), artifacts=EMPTY, trained_steps=None) == [NOTHING_TRAINED]


SAVED = CheckpointReport(step=1, num_bytes=None, saved_at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("status", "kept", "objects", "trained_steps"),
    [
        (RunStatus.SUCCEEDED, KeptSteps(progress=MetricsCursor(last_step=0)), 0, None),
        (RunStatus.SUCCEEDED, KeptSteps(checkpoints=(SAVED,)), 0, None),
        (RunStatus.SUCCEEDED, KeptSteps(), 1, None),
        (RunStatus.SUCCEEDED, KeptSteps(), 0, 3),
        (RunStatus.SUCCEEDED, KeptSteps(), None, None),
        (RunStatus.FAILED, KeptSteps(), 0, None),
        (RunStatus.RUNNING, KeptSteps(), 0, None),
    ],
)
def test_any_sign_of_training_and_any_failure_are_without_that_warning(
    status: RunStatus, kept: KeptSteps, objects: int | None, trained_steps: int | None
) -> None:
    artifacts = None if objects is None else {"objects": objects}
    assert result_warnings(status, kept, artifacts=artifacts, trained_steps=trained_steps) == []


def test_a_run_that_lost_its_files_has_one_warning_about_its_results() -> None:
    kept = KeptSteps(progress=MetricsCursor(lost_files=ONE))
    found = result_warnings(RunStatus.SUCCEEDED, kept, artifacts=EMPTY, trained_steps=None)
    assert found == [lost_files_warning(ONE)]
