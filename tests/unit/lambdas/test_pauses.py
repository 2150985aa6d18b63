"""Pauses of the workflow between two polls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lambdas.handlers import ensure_capacity
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, Aws
from trainflow.workflow.pauses import pause_seconds, watch_seconds

POLLS = st.integers(10, 300)


@given(waited=st.floats(0, 1e8), shortest=POLLS)
def test_a_wait_is_at_most_a_twentieth_longer_than_necessary(waited: float, shortest: int) -> None:
    pause = pause_seconds(waited, shortest=shortest)
    assert shortest <= pause <= max(shortest, waited / 20 + 1)


@given(waited=st.floats(0, 1e8), shortest=POLLS, left=st.floats(-100, 1e5))
def test_a_pause_ends_when_the_wait_is_given_up(waited: float, shortest: int, left: float) -> None:
    assert shortest <= pause_seconds(waited, shortest=shortest, longest=left) <= max(shortest, left + 1)


def test_a_job_is_polled_as_often_as_the_spec_says_and_less_often_in_an_old_run() -> None:
    assert [watch_seconds(timedelta(days=days), shortest=30) for days in (0, 15, 16, 365)] == [30, 30, 32, 600]


def test_the_time_that_a_run_has_waited_for_nodes_counts_over_all_its_attempts(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    run = run_of(spec_with(limits={"capacity_timeout_minutes": 60}))
    aws.add_nodegroup("trn1.32xlarge")

    def poll(waited: int) -> Any:
        begun = datetime.now(UTC) - timedelta(minutes=50)
        event = {"run": run.model_dump(mode="json"), "waiting_since": begun.isoformat(), "waited_seconds": waited}
        return ensure_capacity.lambda_handler(event, CONTEXT)["wait_seconds"]

    assert [poll(0), poll(6000)] == [10, 300]
    assert poll(100_000) in (599, 600), "no longer than the limit"
