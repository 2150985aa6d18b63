"""The grace of a failed gang's pods, and the nodes that need no further test."""

from __future__ import annotations

import pytest

from lambdas.handlers import tear_down
from lambdas.logic.restarting import HANGING_GRACE_SECONDS, MAY_SAVE, SUSPICIOUS, grace_seconds, trained_soundly
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import job_ref, run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, Aws
from trainflow.failures.error_table import error_list
from trainflow.workflow.run import MetricsCursor, Run


def test_ranks_that_lost_another_one_get_no_time_to_save_what_they_cannot_save() -> None:
    assert grace_seconds("WorkerFailed") == grace_seconds("NodeLost") == HANGING_GRACE_SECONDS


@pytest.mark.parametrize("error", [*sorted(MAY_SAVE), None])
def test_ranks_that_may_all_be_there_keep_the_time_of_their_pods(error: str | None) -> None:
    assert grace_seconds(error) is None


def test_the_errors_are_those_of_the_table() -> None:
    assert {*error_list("restarted")} >= MAY_SAVE | SUSPICIOUS


@pytest.mark.parametrize(
    ("last_step", "before", "sound"), [(None, -1, False), (5, -1, True), (5, 5, False), (6, 5, True), (0, -1, True)]
)
def test_nodes_are_sound_if_the_job_has_trained_on_them(last_step: int | None, before: int, sound: bool) -> None:
    progress = MetricsCursor(last_step=last_step, restarted_at_step=before)
    assert trained_soundly("WorkerFailed", progress) is sound


@pytest.mark.parametrize(
    ("checkpoint", "before", "sound"), [(None, -1, False), (0, -1, True), (3, -1, True), (3, 3, False)]
)
def test_a_program_without_steps_has_trained_if_it_left_a_checkpoint(
    checkpoint: int | None, before: int, sound: bool
) -> None:
    progress = MetricsCursor(last_checkpoint=checkpoint, restarted_at_checkpoint=before)
    assert trained_soundly("WorkerFailed", progress) is sound


@pytest.mark.parametrize("error", [*sorted(SUSPICIOUS), "DeviceFailed", "NodeLost", "NodeUnhealthy"])
def test_nodes_are_tested_again_where_any_may_be_the_reason_or_another_may_come(error: str) -> None:
    assert not trained_soundly(error, MetricsCursor(last_step=5))


@pytest.mark.parametrize(("error", "tested"), [("WorkerFailed", False), ("DeviceFailed", True)])
def test_the_job_after_a_dead_worker_does_not_test_its_nodes_again(
    aws: Aws, cluster: FakeKubernetesApi, error: str, tested: bool
) -> None:
    run = run_of(spec_with(compute__check_nodes=True))
    cause = {"errorMessage": "Pod 'x' of the job failed.", "errorType": error}
    event = {
        "run": run.model_dump(mode="json"),
        "job": job_ref(run).model_dump(mode="json"),
        "error": {"Error": error, "Cause": str(cause)},
        "progress": MetricsCursor(last_step=5).model_dump(mode="json"),
        "restarts_in_vain": 1,
    }
    after = Run.model_validate(tear_down.lambda_handler(event, CONTEXT)["run"])
    assert after.tests_nodes is tested
