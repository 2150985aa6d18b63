"""Steps that were found in files count where the log shows none, and never beside those of the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.jobs import job_of
from tests.fakes.runs import run_of, spec_with
from tests.unit.progress.test_reader import hugging_face, polled, titan
from trainflow.protocol.plan import Progress
from trainflow.spec.progress import Format
from trainflow.workflow.run import Stage

CUTS = st.lists(st.integers(0, 60), max_size=8)


def of_files(step: int) -> str:
    return f'{{"trainflow_metrics": {{"train_loss": {10 / step}, "step": {step}, "relayed": true}}}}'


@pytest.mark.parametrize(
    "progress",
    ["auto", Format(preset="lightning"), Format(pattern=r"at (?P<step>\d+)"), Format(json_lines=True)],
    ids=["auto", "preset", "pattern", "json_lines"],
)
@given(cuts=CUTS)
def test_files_show_the_steps_that_the_log_lacks(progress: Any, cuts: list[int]) -> None:
    log = [text for step in range(1, 16) for text in (of_files(step), "Epoch 1, no number of a step", "x")]
    steps, cursor = polled(log, cuts, progress)
    assert [(step.step, step.loss) for step in steps] == [(step, 10 / step) for step in range(1, 16)]
    assert cursor.format_name == "files"


@given(cuts=CUTS)
def test_the_log_is_first(cuts: list[int]) -> None:
    log = [text for step in range(1, 16) for text in (titan(step), of_files(step), of_files(step + 100))]
    steps, cursor = polled(log, cuts)
    assert [step.step for step in steps] == list(range(1, 16))
    assert cursor.format_name == "torchtitan"


@given(cuts=CUTS)
def test_files_with_a_loss_come_before_a_log_that_shows_none(cuts: list[int]) -> None:
    log = [text for step in range(1, 16) for text in (f"epoch {step}: {{'accuracy': 0.5}}", of_files(step))]
    steps, cursor = polled(log, cuts)
    assert {step.step: step.loss for step in steps} == {step: 10 / step for step in range(1, 16)}
    assert cursor.format_name == "files"


@given(cuts=CUTS)
def test_files_that_count_something_else_do_not_lead_back(cuts: list[int]) -> None:
    log = [text for step in range(1, 16) for text in (f"step {100 * step}/1500 lr 0.1", of_files(step))]
    steps, _ = polled(log, cuts)
    assert [step.step for step in steps] == sorted(step.step for step in steps)


@given(cuts=CUTS)
def test_lines_that_are_counted_are_not_mixed_with_the_steps_of_files(cuts: list[int]) -> None:
    log = [text for step in range(1, 16) for text in (hugging_face(step / 10), of_files(step * 10))]
    steps, _ = polled(log, cuts)
    assert [step.step for step in steps] == list(range(1, 16))


@given(cuts=CUTS)
def test_a_log_that_shows_steps_later_does_not_change_the_choice(cuts: list[int]) -> None:
    log = [*map(of_files, range(1, 11)), *(text for step in (11, 12) for text in (titan(step + 500), of_files(step)))]
    steps, cursor = polled(log, cuts)
    assert [step.step for step in steps] == list(range(1, 13))
    assert cursor.format_name == "files"


def test_the_programs_own_report_comes_before_files() -> None:
    own = '{"trainflow_metrics": {"step": 3, "loss": 1.0}}'
    steps, cursor = polled([of_files(1), own, of_files(200)], [1, 2])
    assert [step.step for step in steps] == [1, 3]
    assert cursor.format_name == "trainflow"


@pytest.mark.parametrize(
    ("progress", "step"),
    [
        ("auto", Progress(search=True)),
        ({"preset": "lightning"}, Progress(search=True)),
        ({"pattern": r"at (?P<step>\d+)"}, Progress(search=True)),
        ({"tensorboard": "logs"}, Progress(tensorboard="logs")),
        ("none", Progress()),
    ],
)
@pytest.mark.parametrize("backend", ["job", "slurm"])
def test_the_files_of_other_peoples_programs_are_searched_in_pods(backend: str, progress: Any, step: Progress) -> None:
    image = {} if backend == "slurm" else {"image": "example.com/train:1"}
    spec = spec_with(progress=progress, workload={"command": ["train"], **image}, compute__backend=backend)
    job = job_of(run_of(spec), Stage.TRAINING, 1, artifacts_url="s3://bucket/runs/x/")
    assert job.plan is not None
    assert job.plan.progress == (None if backend == "slurm" and step.search else step)
