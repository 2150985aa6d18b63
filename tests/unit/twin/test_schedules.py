from __future__ import annotations

import json
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

import local.aws.schedules
from local.aws.schedules import Clock, Schedules, filled
from local.aws.targets import Target

TUESDAY = datetime(2026, 10, 20, 12, 0, tzinfo=UTC)


def test_the_input_says_when_it_was_due_in_utc() -> None:
    text = json.dumps({"scheduled_at": "<aws.scheduler.scheduled-time>", "by": "<aws.scheduler.schedule-arn>"})
    assert json.loads(filled(text, schedule_arn="arn:x", due=TUESDAY)) == {
        "scheduled_at": "2026-10-20T12:00:00Z",
        "by": "arn:x",
    }


def test_the_clock_runs_faster_and_can_be_set() -> None:
    clock = Clock(time_scale=1000)
    clock.jump(TUESDAY)
    first, second = clock.now(), clock.now()
    assert TUESDAY <= first < second
    assert first.date() == TUESDAY.date()


class Deliveries:
    """Targets whose deliveries end when a test ends them."""

    def __init__(self) -> None:
        self.futures: list[Future[None]] = []

    def send(self, target: Target, text: str) -> Future[None]:
        self.futures.append(Future())
        return self.futures[-1]


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> Deliveries:
    """Of one schedule, which comes due every five minutes."""
    target = {"Arn": "arn:function", "RoleArn": "arn:role", "RetryPolicy": {"MaximumRetryAttempts": 0}}
    schedule = SimpleNamespace(
        arn="arn:schedule",
        schedule_expression="rate(5 minutes)",
        schedule_expression_timezone="UTC",
        state="ENABLED",
        target=target,
    )
    monkeypatch.setattr("local.aws.schedules._schedules", lambda: [schedule])
    return Deliveries()


def polled(schedules: Schedules, deliveries: Deliveries, *, later: timedelta) -> int:
    """Number of events in all, after a poll at a later time."""
    schedules.clock.jump(schedules.clock.now() + later)
    schedules.poll()
    return len(deliveries.futures)


def test_a_schedule_waits_for_the_delivery_of_its_last_event(deliveries: Deliveries) -> None:
    schedules = Schedules(deliveries, time_scale=1)  # type: ignore[arg-type]
    schedules.poll()
    assert polled(schedules, deliveries, later=timedelta(minutes=6)) == 1
    assert [polled(schedules, deliveries, later=timedelta(minutes=6)) for _ in range(3)] == [1, 1, 1]
    deliveries.futures[0].set_result(None)
    assert [polled(schedules, deliveries, later=timedelta(0)) for _ in range(2)] == [2, 2]


def test_no_schedule_fires_more_often_than_one_machine_can_handle(deliveries: Deliveries) -> None:
    """At a time scale of 300, five minutes are a second, and ten seconds fifty minutes."""
    schedules = Schedules(deliveries, time_scale=300)  # type: ignore[arg-type]
    schedules.poll()
    assert polled(schedules, deliveries, later=timedelta(minutes=6)) == 1
    deliveries.futures[0].set_result(None)
    assert polled(schedules, deliveries, later=timedelta(minutes=40)) == 1
    assert polled(schedules, deliveries, later=timedelta(minutes=11)) == 2


def test_a_schedule_that_cannot_be_read_is_reported_once_and_the_others_fire(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (good,) = local.aws.schedules._schedules()
    bad = SimpleNamespace(**{**vars(good), "arn": "arn:bad", "schedule_expression": "rate(10 minutess)"})
    monkeypatch.setattr("local.aws.schedules._schedules", lambda: [bad, good])
    schedules = Schedules(deliveries, time_scale=1)  # type: ignore[arg-type]
    schedules.poll()
    assert [polled(schedules, deliveries, later=timedelta(minutes=6)) for _ in range(2)] == [1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "unexpected error in schedule arn:bad: InvalidScheduleExpression: 'rate(10 minutess)' is not a rate: write "
        "rate(<positive number> <minutes, hours or days>), such as rate(7 days)"
    ]


def test_a_schedule_without_a_target_fires_nothing_and_the_others_fire(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    (good,) = local.aws.schedules._schedules()
    bad = SimpleNamespace(**{**vars(good), "arn": "arn:no-target", "target": {}})
    monkeypatch.setattr("local.aws.schedules._schedules", lambda: [bad, good])
    schedules = Schedules(deliveries, time_scale=1)  # type: ignore[arg-type]
    schedules.poll()
    assert polled(schedules, deliveries, later=timedelta(minutes=6)) == 1
