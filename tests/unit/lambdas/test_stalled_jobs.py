"""What counts as progress of a job, and what the error says was watched."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lambdas.logic.jobs import job_of
from lambdas.logic.watching import require_finite_loss, require_progress
from tests.fakes.runs import STARTED_AT, run_of, spec_with
from trainflow.errors import InvalidRunSpec, JobStalled, LossNotFinite
from trainflow.observed.job import JobStatus
from trainflow.protocol.plan import Progress, Report
from trainflow.spec.run_spec import Limits, parse_run_spec
from trainflow.workflow.run import JobPhase, JobRef, MetricsCursor, Stage

JOB = JobRef(name="bert-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=2)
STATUS = JobStatus(phase=JobPhase.RUNNING, started_at=STARTED_AT)
LIMITS = run_of().spec.limits
NOW = STARTED_AT + timedelta(hours=5)
RECENTLY, LONG_AGO = NOW - timedelta(minutes=1), NOW - timedelta(hours=3)


def require(cursor: MetricsCursor) -> None:
    require_progress(JOB, STATUS, cursor, limits=LIMITS, now=NOW)


def test_a_job_without_steps_lives_while_its_log_grows() -> None:
    require(MetricsCursor(printed_at=RECENTLY))
    with pytest.raises(JobStalled, match=r"no step.*rank 0's log"):
        require(MetricsCursor(printed_at=LONG_AGO))
    with pytest.raises(JobStalled, match=r"printed.* 60 minutes"):
        require(MetricsCursor())


def test_a_job_that_has_logged_a_step_has_to_log_the_next_one() -> None:
    require(MetricsCursor(last_step=7, progressed_at=RECENTLY))
    with pytest.raises(JobStalled, match=r"step after 7 .*60 minutes.*file"):
        require(MetricsCursor(last_step=7, progressed_at=LONG_AGO, printed_at=RECENTLY))


@pytest.mark.parametrize(
    ("progress", "step"),
    [
        ("auto", None),
        ({"json_lines": True}, None),
        ("none", Progress()),
        ({"tensorboard": "logs"}, Progress(tensorboard="logs")),
        ({"trainer_state": "c-*/trainer_state.json"}, Progress(trainer_state="c-*/trainer_state.json")),
    ],
)
def test_a_program_whose_steps_are_not_in_its_log_has_another_one_beside_it(
    progress: Any, step: Progress | None
) -> None:
    job = job_of(run_of(spec_with(progress=progress)), Stage.TRAINING, 1, artifacts_url="s3://bucket/runs/x/")
    assert job.plan is not None
    assert (job.plan.progress, job.plan.report) == (step, Report())


def test_a_training_whose_loss_stays_nan_is_ended_and_one_that_skips_a_few_steps_is_not() -> None:
    require_finite_loss(JOB, MetricsCursor(non_finite_in_a_row=9, first_non_finite_step=40), limits=Limits())
    with pytest.raises(LossNotFinite, match=r"last 10 losses.*first.* 40\b"):
        require_finite_loss(JOB, MetricsCursor(non_finite_in_a_row=10, first_non_finite_step=40), limits=Limits())


@pytest.mark.parametrize("row", [1, 2, 3, 7, 500])
def test_the_spec_names_how_many_losses_in_a_row_end_a_training_or_that_none_do(row: int) -> None:
    cursor = MetricsCursor(non_finite_in_a_row=row, first_non_finite_step=1)
    with pytest.raises(LossNotFinite, match=f"last {row} losses"):
        require_finite_loss(JOB, cursor, limits=Limits.model_validate({"on_non_finite": {"stop_after": row}}))
    require_finite_loss(JOB, cursor, limits=Limits.model_validate({"on_non_finite": {"stop_after": row + 1}}))
    require_finite_loss(JOB, cursor, limits=Limits.model_validate({"on_non_finite": "continue"}))


@pytest.mark.parametrize("value", ["stop", 5, None, {}, {"stop_after": 0}, {"stop_after": "x"}, {"stop_after": True}])
def test_another_action_on_a_loss_that_is_not_finite_is_refused_in_one_sentence(value: Any) -> None:
    with pytest.raises(InvalidRunSpec, match=r"^limits\.on_non_finite: .*stop_after: N") as refused:
        parse_run_spec(spec_with(limits={"on_non_finite": value}))
    assert str(refused.value).count("on_non_finite") == 1


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.TRAINING])
def test_the_losses_of_a_training_end_no_other_job_of_the_run(stage: Stage) -> None:
    """A publish job after the training has the same cursor in its state."""
    other = JOB.model_copy(update={"stage": stage})
    require_finite_loss(other, MetricsCursor(non_finite_in_a_row=10, first_non_finite_step=40), limits=Limits())
