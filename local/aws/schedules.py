"""EventBridge Scheduler's clock: moto 5.2.5 keeps schedules and never fires one.

Time is scaled, as for the waits of the state machines: at a time scale of 30, a schedule of every five minutes fires
every ten seconds. One machine does all the work here, so a larger scale lets no schedule fire more often than that, and
none fires while its last event is being delivered: events would queue up faster than they are handled. A schedule that
has come due several times in the meantime fires once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from local.aws.targets import Target, Targets
from local.loop import Loop

POLL_SECONDS = 0.2
MIN_PAUSE_SECONDS = 10.0
"""Least time between two events of a schedule, unscaled."""

UNITS = {"minute": 60, "hour": 3600, "day": 86400}
RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")


class Clock:
    """The clock of the schedules."""

    def __init__(self, *, time_scale: float) -> None:
        self._time_scale = time_scale
        self._began = self._base = datetime.now(UTC)

    def now(self) -> datetime:
        """The scaled time, in UTC."""
        return self._base + (datetime.now(UTC) - self._began) * self._time_scale

    def jump(self, moment: datetime) -> None:
        """Set the clock, for instance to the time of a schedule."""
        self._began, self._base = datetime.now(UTC), moment


class Schedules:
    """Fires the schedules of the account."""

    def __init__(self, targets: Targets, *, time_scale: float) -> None:
        self.clock = Clock(time_scale=time_scale)
        self._targets = targets
        self._min_pause = timedelta(seconds=MIN_PAUSE_SECONDS * time_scale)
        self._next: dict[str, tuple[str, datetime | None]] = {}
        self._deliveries: dict[str, Future[None]] = {}
        self._loop = Loop(self.poll, name="schedules", seconds=POLL_SECONDS)

    def start(self) -> None:
        """Start to fire schedules that come due."""
        self._loop.start()

    def stop(self) -> None:
        """Stop to fire schedules."""
        self._loop.stop()

    def poll(self) -> None:
        """Fire the schedules that have come due since the last poll."""
        now = self.clock.now()
        for schedule in _schedules():
            expression = f"{schedule.schedule_expression} {schedule.schedule_expression_timezone}"
            known, due = self._next.get(schedule.arn, ("", None))
            if known != expression:
                due = next_time(schedule.schedule_expression, schedule.schedule_expression_timezone, after=now)
            elif due is not None and due <= now and not self._is_delivering(schedule.arn):
                self._fire(schedule, due)
                due = next_time(schedule.schedule_expression, schedule.schedule_expression_timezone, after=now)
                due = due and max(due, now + self._min_pause)
            self._next[schedule.arn] = (expression, due)

    def _is_delivering(self, schedule_arn: str) -> bool:
        delivery = self._deliveries.get(schedule_arn)
        return delivery is not None and not delivery.done()

    def _fire(self, schedule: Any, due: datetime) -> None:
        if schedule.state != "ENABLED":
            return
        target = schedule.target
        text = filled(target.get("Input") or "{}", schedule_arn=schedule.arn, due=due)
        delivery = self._targets.send(
            Target(
                arn=target["Arn"],
                sender=schedule.arn,
                role_arn=target["RoleArn"],
                retries=target["RetryPolicy"]["MaximumRetryAttempts"],
                dead_letter_arn=target.get("DeadLetterConfig", {}).get("Arn"),
            ),
            text,
        )
        if delivery is not None:
            self._deliveries[schedule.arn] = delivery


def filled(text: str, *, schedule_arn: str, due: datetime) -> str:
    """A schedule's input with its attributes (EventBridge Scheduler user guide, 'Adding context attributes')."""
    attributes = {
        "schedule-arn": schedule_arn,
        "scheduled-time": due.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "execution-id": str(uuid.uuid4()),
        "attempt-number": "1",
    }
    for name, value in attributes.items():
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def next_time(expression: str, time_zone: str, *, after: datetime) -> datetime | None:
    """The next time of a schedule; None if there is none.

    Args:
        expression: `cron(…)`, `rate(…)` or `at(…)`.
        time_zone: IANA name of the zone of the expression.
        after: A time with a time zone.
    """
    if rate := RATE.fullmatch(expression):
        return after + timedelta(seconds=int(rate[1]) * UNITS[rate[2]])
    zone = ZoneInfo(time_zone)
    if expression.startswith("at("):
        moment = datetime.fromisoformat(expression[3:-1]).replace(tzinfo=zone)
        return moment if moment > after else None
    from croniter import croniter  # type: ignore[import-untyped]  # imported late: most twins have no cron expression

    found: datetime = croniter(_as_croniter(expression[5:-1]), after.astimezone(zone)).get_next(datetime)
    return found.astimezone(UTC)


def _as_croniter(fields: str) -> str:
    """Convert a cron expression: AWS counts weekdays from Sunday = 1; croniter counts them from 0, and has a field for
    seconds before the one for years."""
    minute, hour, day, month, weekday, year = fields.split()
    weekday = re.sub(r"(?<![#/\d])\d", lambda digit: str(int(digit[0]) - 1), weekday)
    weekday = re.sub(r"(\d)L", r"L\1", weekday)
    return " ".join((minute, hour, day, month, weekday, "0", year)).replace("?", "*")


def _schedules() -> Iterable[Any]:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.scheduler.models import scheduler_backends

    for backend in list(scheduler_backends[DEFAULT_ACCOUNT_ID].values()):
        for group in list(backend.schedule_groups.values()):
            yield from list(group.schedules.values())
