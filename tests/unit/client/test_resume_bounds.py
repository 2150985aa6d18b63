"""Which checkpoints of an ended run the next one passes over, by the losses that the first has logged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from local.continued_runs import nothing_to_continue
from local.twin import REPOSITORY
from tests.fakes.runs import SPEC, spec_with
from trainflow.client.continuing import resume_note, spec_continuing
from trainflow.client.resume_bounds import resume_bounds
from trainflow.observed.step import Step
from trainflow.record.steps import newest_losses
from trainflow.spec.run_spec import ResumeUntil, parse_run_spec
from trainflow.workflow.run import MetricsCursor
from trainflow.workflow.run_record import RunRecord, RunStatus, StateVisit, Training

BEGAN = datetime(2026, 11, 22, 8, tzinfo=UTC)
STRANGER = {"script": "train.py", "image": "i"}


def logged(losses: Sequence[float | None], *, every: int = 1, first: int = 1) -> list[Step]:
    return [
        Step(BEGAN + timedelta(seconds=number), None, first + number * every, loss, None, None)
        for number, loss in enumerate(losses)
    ]


def bound_after(steps: Sequence[Step], **cursor: Any) -> dict[str, ResumeUntil]:
    first = next((step.step for step in steps if step.loss is not None and not abs(step.loss) < inf), None)
    facts = MetricsCursor(**newest_losses(MetricsCursor(), steps), first_non_finite_step=first, **cursor)
    return resume_bounds("a-1", SPEC, facts)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("row", [1, 2, 3, 7])
@pytest.mark.parametrize("good", [1, 2, 5])
def test_checkpoints_after_the_newest_finite_loss_are_passed_over(bad: float, row: int, good: int) -> None:
    bound = bound_after(logged([0.5] * good + [bad] * row, every=10, first=10))["a-1"]
    assert (bound.step, bound.time) == (10 * good, BEGAN + timedelta(seconds=good))


@pytest.mark.parametrize("losses", [[], [0.5], [nan, 0.5], [0.5, nan, nan, 0.4], [0.5, None, inf, 0.5, None]])
def test_a_loss_that_recovered_or_never_failed_sets_no_bound(losses: list[float | None]) -> None:
    assert bound_after(logged(losses)) == {}


def test_lines_of_an_evaluation_neither_begin_nor_end_a_row() -> None:
    assert bound_after(logged([0.5, nan, None, nan, None]))["a-1"].step == 1


def test_a_row_that_spans_polls_began_where_its_first_step_was() -> None:
    steps, facts = logged([0.5, nan, nan, nan]), MetricsCursor()
    for step in steps:
        facts = facts.model_copy(update=newest_losses(facts, [step]))
    assert (facts.non_finite_in_a_row, facts.non_finite_since) == (3, steps[1].logged_at)
    assert MetricsCursor.model_validate_json(facts.model_dump_json()) == facts


def test_a_training_that_was_never_finite_leaves_only_what_was_before_its_first_step() -> None:
    assert bound_after(logged([nan, nan]))["a-1"].step == 0


@pytest.mark.parametrize(
    ("path", "expected"),
    [("step-{step}.pt", (29, None)), ("*.pt", (None, datetime.fromtimestamp(30, UTC)))],
)
def test_a_checkpoint_that_gave_no_finite_loss_is_passed_over_next(path: str, expected: tuple[Any, Any]) -> None:
    document = {**spec_with(workload=STRANGER, checkpoint={"path": path}), "resume_from": ["a-2", "a-1"]}
    facts = Training(steps=32, non_finite_in_a_row=2, first_non_finite_step=31, resumed_from=30)
    bounds = resume_bounds("a-3", document, facts)
    assert {name: (until.step, until.time) for name, until in bounds.items() if name != "a-3"} == {
        "a-2": expected,
        "a-1": expected,
    }


def record(training: Training, **fields: Any) -> RunRecord:
    visits = [StateVisit(name="SubmitTraining", entered_at=BEGAN)]
    spec = {**SPEC, **fields}
    return RunRecord(
        run_id="a-1", status=RunStatus.FAILED, spec=spec, started_at=BEGAN, states=visits, training=training
    )


def test_the_bounds_of_runs_before_stay_in_a_chain_and_a_healthy_end_adds_none() -> None:
    before = {"resume_from": ["a-0"], "resume_until": {"a-0": {"step": 7, "reason": "x"}}}
    spec = spec_continuing(record(Training(steps=40, last_finite_step=40), **before))
    assert spec.resume_until == {"a-0": ResumeUntil(step=7, reason="x")}
    assert resume_note(spec) == "Checkpoints of a-0 after step 7 are passed over: x."


def test_a_chosen_step_is_the_bound_of_all_runs() -> None:
    before = {"resume_from": ["a-0"], "resume_until": {"a-0": {"step": 7, "reason": "x"}}}
    steps = logged([0.5] * 4, every=10, first=10)
    spec = spec_continuing(record(Training(steps=40), **before), steps=steps, from_step=25)
    assert {name: (until.step, until.time) for name, until in spec.resume_until.items()} == {
        "a-1": (25, steps[2].logged_at),
        "a-0": (25, None),
    }


@pytest.mark.parametrize("names", [["ckpt/step_30.pt"], ["ckpt/step_30.pt", "ckpt/step_20.pt"]])
def test_a_run_without_a_checkpoint_within_the_bound_is_refused_with_those_that_it_has(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        (tmp_path / "a-1" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a-1" / name).write_text("x")
    document = spec_with(workload=STRANGER, checkpoint={"path": "ckpt/step_{step}.pt"}, dataset=None)
    until = {"a-1": {"step": 19, "reason": "it is newer than step 19"}}
    spec = parse_run_spec({**document, "resume_from": "a-1", "resume_until": until})
    reason = nothing_to_continue(spec, runs=tmp_path, repository=REPOSITORY)
    assert (
        reason == f"no complete checkpoint of a-1 is old enough (it is newer than step 19); it has {', '.join(names)}."
    )
    wider = parse_run_spec({**document, "resume_from": "a-1", "resume_until": {"a-1": {"step": 30}}})
    assert nothing_to_continue(wider, runs=tmp_path, repository=REPOSITORY) is None


def test_the_bound_of_our_own_checkpoints_is_their_step(tmp_path: Path) -> None:
    for step in (10, 20):
        for ending, text in ((".pt", "x"), (".json", json.dumps({}))):
            file = tmp_path / "a-1" / "checkpoints" / f"step-{step:08d}{ending}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    for bound, is_found in ((9, False), (10, True), (25, True)):
        spec = parse_run_spec(
            {**spec_with(dataset=None), "resume_from": "a-1", "resume_until": {"a-1": {"step": bound}}}
        )
        assert (nothing_to_continue(spec, runs=tmp_path, repository=REPOSITORY) is None) == is_found
