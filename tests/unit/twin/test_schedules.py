from __future__ import annotations

import json
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from local.aws.schedules import Clock, Schedules, filled, next_time
from local.aws.targets import Target

TUESDAY = datetime(2026, 10, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "due"),
    [
        ("rate(5 minutes)", "2026-10-20T12:05"),
        ("rate(1 hour)", "2026-10-20T13:00"),
        ("at(2026-10-20T15:00:00)", "2026-10-20T13:00"),
        ("cron(0 2 ? * SAT *)", "2026-10-24T00:00"),
        ("cron(0 2 ? * 7 *)", "2026-10-24T00:00"),  # AWS counts from Sunday = 1
        ("cron(0 2 ? * 2-6 *)", "2026-10-21T00:00"),
        ("cron(0 2 ? * 2#1 *)", "2026-11-02T01:00"),  # summer time has ended
        ("cron(0 2 ? * 6L *)", "2026-10-30T01:00"),
        ("cron(0/15 * * * ? *)", "2026-10-20T12:15"),
        ("cron(0 2 L * ? *)", "2026-10-31T01:00"),
        ("cron(0 9 1 1 ? 2028)", "2028-01-01T08:00"),
    ],
)
def test_an_expression_comes_due_by_the_clock_of_its_time_zone(expression: str, due: str) -> None:
    assert next_time(expression, "Europe/Berlin", after=TUESDAY) == datetime.fromisoformat(due).replace(tzinfo=UTC)


def test_a_moment_that_has_passed_never_comes_again() -> None:
    assert next_time("at(2026-10-20T14:00:00)", "Europe/Berlin", after=TUESDAY) is None


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
