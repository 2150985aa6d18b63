"""A training that ends while it opens its checkpoint is submitted again with the one before, once for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lambdas.logic.opening import MAX_UNUSABLE, with_checkpoint
from tests.fakes.runs import TRAINER_IMAGE, run_of, spec_with
from trainflow.errors import CheckpointUnusable, TrainflowError, named_error
from trainflow.failures.error_table import error_table
from trainflow.failures.judgement import Judgement
from trainflow.protocol.checkpoint_line import Opening, opening_line, parse_opening_line
from trainflow.workflow.failed_checkpoints import FailedCheckpoints
from trainflow.workflow.run import Run

NEWEST, BEFORE = "/runs/llm-1/state-20", "/runs/llm-1/state-10"
OPENED = opening_line(Opening(path=NEWEST, before=BEFORE))
STEP = '{"trainflow_metrics": {"step": 21, "loss": 0.5}}'


def run(*, suspected: str | None = None, unusable: tuple[str, ...] = (), max_restarts: int = 3) -> Run:
    workload = {"command": ["train"], "image": TRAINER_IMAGE}
    made = run_of(spec_with(workload=workload, checkpoint={"path": "state-{step}"}, limits__max_restarts=max_restarts))
    return made.model_copy(update={"failed_checkpoints": FailedCheckpoints(suspected=suspected, unusable=unusable)})


def error(name: str = "ScriptFailed", line: str = "ValueError: there are 90 weights in place of 200") -> TrainflowError:
    return named_error(
        name, f"Pod 'p' ended with exit code 1: {line}.", Judgement(rule="r", line=line, pod="p", node="n")
    )


def judged(found: TrainflowError, *lines: str, **of_run: Any) -> TrainflowError:
    return with_checkpoint(found, run(**of_run), [lines])


def test_a_program_that_cannot_open_its_checkpoint_is_given_the_one_before() -> None:
    found = judged(error(), "starting", OPENED, "Traceback (most recent call last):")
    assert type(found) is CheckpointUnusable
    assert str(found) == (
        f"The program ended before its first step while it resumed from {NEWEST}, so the next attempt resumes from "
        f"{BEFORE}. Pod 'p' ended with exit code 1: ValueError: there are 90 weights in place of 200."
    )
    assert found.judgement == Judgement(
        rule="r", line="ValueError: there are 90 weights in place of 200", pod="p", node=None, checkpoint=NEWEST
    )


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["no checkpoint"],
        [OPENED, STEP],
        [OPENED, '{"trainflow_checkpoint": {"step": 30}}'],
        [opening_line(Opening(path=NEWEST, before=None))],
    ],
    ids=["no log", "no checkpoint", "a step", "a newer checkpoint", "no other checkpoint"],
)
def test_any_other_end_is_judged_as_before(lines: list[str]) -> None:
    assert judged(before := error(), *lines) is before


def test_a_step_of_an_earlier_attempt_in_the_same_log_is_none_of_this_one() -> None:
    assert type(judged(error(), STEP, OPENED)) is CheckpointUnusable


def test_a_step_that_rank_0_logged_counts_for_the_pod_that_failed() -> None:
    before = error()
    assert with_checkpoint(before, run(), [[OPENED], [OPENED, STEP]]) is before


@pytest.mark.parametrize(
    "name", ["OutOfMemory", "NetworkFailed", "NodeLost", "ConfigInvalid", "ImageUnavailable", "WorldSizeMismatch"]
)
def test_an_error_that_no_checkpoint_causes_walks_through_none(name: str) -> None:
    assert judged(before := error(name), OPENED) is before


@pytest.mark.parametrize("line", ["SyntaxError: invalid syntax", "ModuleNotFoundError: No module named 'x'"])
def test_a_program_that_was_not_loaded_did_not_open_its_checkpoint(line: str) -> None:
    assert judged(before := error(line=line), OPENED) is before


def test_a_line_that_names_the_checkpoint_is_evidence_for_any_error() -> None:
    line = f"FileNotFoundError: [Errno 2] No such file or directory: '{NEWEST}/optimizer.raw'"
    assert type(judged(error("DatasetNotFound", line), OPENED)) is CheckpointUnusable


def test_an_error_that_may_pass_has_the_same_checkpoint_tried_once_more() -> None:
    first = judged(error("WorkerFailed"), OPENED)
    assert type(first).__name__ == "WorkerFailed"
    assert first.judgement is not None
    assert first.judgement.checkpoint == NEWEST
    assert type(judged(error("WorkerFailed"), OPENED, suspected=NEWEST)) is CheckpointUnusable
    assert type(judged(error("WorkerFailed"), OPENED, suspected=BEFORE)).__name__ == "WorkerFailed"


def test_a_run_gives_up_after_a_few_checkpoints_and_says_so() -> None:
    unusable = tuple(f"job-{number}" for number in range(MAX_UNUSABLE))
    found = judged(error(), OPENED, unusable=unusable)
    assert type(found).__name__ == "ScriptFailed"
    assert str(found).endswith("Attempts with 3 newer checkpoints ended before their first step, too.")


def test_a_run_that_may_not_be_restarted_is_not() -> None:
    assert judged(before := error(), OPENED, max_restarts=0) is before


def test_the_checkpoints_of_a_run_are_passed_over_once_however_often_a_function_is_repeated() -> None:
    failed = FailedCheckpoints()
    suspected = failed.after(error="WorkerFailed", checkpoint=NEWEST, job="job-2")
    assert suspected == FailedCheckpoints(suspected=NEWEST)
    assert suspected.after(error="NodeLost", checkpoint=None, job="job-3") == failed
    once = suspected.after(error="CheckpointUnusable", checkpoint=NEWEST, job="job-3")
    assert once == FailedCheckpoints(unusable=("job-3",))
    assert once.after(error="CheckpointUnusable", checkpoint=NEWEST, job="job-3") == once


def test_every_error_that_may_be_the_checkpoints_is_of_the_program() -> None:
    named = {name for name, each in error_table().items() if each.may_be_checkpoint}
    assert named == {"ScriptFailed", "WorkerFailed", "CheckpointInvalid", "CheckpointNotFound", "DatasetInvalid"}


@pytest.mark.parametrize("said", ["{}", '{"path": 3, "before": null}', '{"path": "a"}', "[]", '"x"', "{"])
def test_other_lines_are_no_opening(said: str) -> None:
    assert parse_opening_line(f'{{"trainflow_opening": {said}}}') is None


def test_a_long_path_is_cut() -> None:
    opening = Opening(path="a" * 5000, before="b" * 5000)
    assert parse_opening_line(opening_line(opening)) == replace(opening, path="a" * 1000, before="b" * 1000)
