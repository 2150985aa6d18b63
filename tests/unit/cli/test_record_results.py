"""The record says which results a run has lost, and when there is no sign of any."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from recorded_runs import recorded

from tests.wording import wording
from trainflow.observed.step import Step
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.protocol.lost_files import LostFile, LostFiles
from trainflow.protocol.publication import (
    BEYOND_LIMIT,
    SKIPPED,
    Unpublished,
    UnpublishedFile,
    unpublished_document,
)
from trainflow.record.results import (
    KEPT_NOTHING,
    NOTHING_TRAINED,
    lost_files_warning,
    outcome_warnings,
    result_warnings,
    status_suffix,
    unpublished_warnings,
)
from trainflow.record.steps import KeptSteps, kept_steps_from_json, kept_steps_of
from trainflow.report import render_report
from trainflow.spec.run_spec import RunSpec, parse_run_spec
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
            wording(
                "record_results.the_warning_names_files_with_their_sizes_and_counts_the_rest.1",
                "1.2",
                "model.pt",
                "run_dir",
            ),
        ),
        (
            LostFiles(
                num_files=1234,
                num_bytes=1 << 30,
                largest=(replace(MODEL, num_nodes=3), LostFile(name="log.txt", num_bytes=7)),
                is_partial=True,
            ),
            wording(
                "record_results.the_warning_names_files_with_their_sizes_and_counts_the_rest.2",
                "1,234",
                "1.0",
                "model.pt",
                "1.2",
            ),
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


def spec_of(num_nodes: int = 1, launcher: str = "torchrun", **arguments: int) -> RunSpec:
    return parse_run_spec(
        {
            "version": 1,
            "name": "a",
            "workload": {"script": "t.py", "image": "i", "launcher": launcher, "arguments": arguments},
            "compute": {"instance_type": "c7i.xlarge", "num_nodes": num_nodes},
        }
    )


def steps_at(*numbers: int) -> KeptSteps:
    return kept_steps_of([Step(SAVED.saved_at, None, number, 1.0, None, None) for number in numbers])


KEPT = {"objects": 2, "checkpoint": None}


@pytest.mark.parametrize(
    ("spec", "kept", "artifacts", "trained", "seconds", "warning"),
    [
        (spec_of(max_steps=100), steps_at(10, 20, 30), KEPT, None, 600, "ended without an error at step 30 of 100"),
        (spec_of(max_steps=100), KeptSteps(), KEPT, 7, 600, "ended without an error at step 7 of 100"),
        (spec_of(max_steps=100), steps_at(0, 50), KEPT, None, 600, None),  # the next line would be behind the end
        (spec_of(max_steps=100), steps_at(98, 99), KEPT, None, 600, None),  # counted from 0
        (spec_of(max_steps=100), steps_at(100, 101), KEPT, None, 600, None),
        (spec_of(), steps_at(10), KEPT, None, 2, None),
        (spec_of(), steps_at(10), EMPTY, None, 600, KEPT_NOTHING),
        (spec_of(), KeptSteps(progress=MetricsCursor(last_step=3, lost_files=ONE)), EMPTY, None, 600, None),
        (spec_of(2), KeptSteps(), KEPT, None, 3, "The 2 processes of the gang ended after 3.0 s without a step"),
        (spec_of(2), KeptSteps(), KEPT, None, 600, None),
        (spec_of(2), KeptSteps(), KEPT, None, None, None),
        (spec_of(2), KeptSteps(), EMPTY, None, 3, None),  # has NOTHING_TRAINED
        (spec_of(2), KeptSteps(checkpoints=(SAVED,)), KEPT, None, 3, None),
        (spec_of(2, "none"), KeptSteps(), KEPT, None, 3, None),  # prepares data
        (spec_of(1), KeptSteps(), KEPT, None, 3, None),
        (spec_of(2, max_steps=9), KeptSteps(), None, None, 3, None),
    ],
)
def test_a_success_that_differs_from_its_spec_is_warned_about(
    spec: RunSpec,
    kept: KeptSteps,
    artifacts: dict[str, Any] | None,
    trained: int | None,
    seconds: float | None,
    warning: str | None,
) -> None:
    found = outcome_warnings(
        RunStatus.SUCCEEDED, kept, spec, artifacts=artifacts, trained_steps=trained, seconds=seconds
    )
    assert len(found) == (warning is not None) and (warning or "") in "".join(found)
    failed = outcome_warnings(RunStatus.FAILED, kept, spec, artifacts=artifacts, trained_steps=trained, seconds=seconds)
    assert failed == []


def test_files_that_are_not_in_s3_are_named_with_what_to_do() -> None:
    bad = UnpublishedFile(name=r"latin\xe9.txt", num_bytes=7, reason="its name is not UTF-8")
    big = UnpublishedFile(name="workspace/data.bin", num_bytes=3 << 30, reason="")
    artifacts = {
        SKIPPED: unpublished_document(Unpublished(num_files=3, num_bytes=7, files=(bad,))),
        BEYOND_LIMIT: unpublished_document(Unpublished(num_files=1, num_bytes=3 << 30, files=(big,))),
    }
    assert unpublished_warnings(artifacts, run_folder="/runs/a-1", kept_gib=1) == [
        wording("record_results.files_that_are_not_in_s3_are_named_with_what_to_do.1", "xe9.txt"),
        wording(
            "record_results.files_that_are_not_in_s3_are_named_with_what_to_do.2",
            "3.0",
            "data.bin",
            "workload.kept_gib",
            "run_dir",
        ),
    ]


@pytest.mark.parametrize("said", [None, 7, [], {}, {"num_files": 1}, {"num_files": 1, "num_bytes": 1, "files": [[1]]}])
def test_what_is_no_result_of_a_publisher_is_no_warning(said: Any) -> None:
    assert unpublished_warnings({SKIPPED: said}, run_folder="/runs/a", kept_gib=1) == []


def test_a_success_with_warnings_is_called_so() -> None:
    assert status_suffix(RunStatus.SUCCEEDED, ["w"]) == " with warnings"
    assert status_suffix(RunStatus.SUCCEEDED, []) == status_suffix(RunStatus.FAILED, ["w"]) == ""
