"""EventBridge Scheduler's clock: moto 5.2.5 keeps schedules and never fires one.

Time is scaled, as for the waits of the state machines: at a time scale of 30, a schedule of every five minutes fires
every ten seconds. One machine does all the work here, so a larger scale lets no schedule fire more often than that, and
none fires while its last event is being delivered: events would queue up faster than they are handled. A schedule that
has come due several times in the meantime fires once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

from kubetwin.background import surviving

from local.aws.replacements import replace
from local.aws.targets import Target, Targets
from local.loop import Loop
from trainflow.configuration import schedule_expressions
from trainflow.configuration.schedule_expressions import InvalidScheduleExpression, next_time

POLL_SECONDS = 0.2
MIN_PAUSE_SECONDS = 10.0
"""Least time between two events of a schedule, unscaled."""


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
            surviving(self._fire_if_due, schedule, now, name=f"schedule {schedule.arn}")

    def _fire_if_due(self, schedule: Any, now: datetime) -> None:
        expression = f"{schedule.schedule_expression} {schedule.schedule_expression_timezone}"
        known, due = self._next.get(schedule.arn, ("", None))
        is_due = known == expression and due is not None and due <= now
        if known == expression and (not is_due or self._is_delivering(schedule.arn)):
            return
        self._next[schedule.arn] = (expression, None)  # what follows may raise, and would raise with every poll
        coming = next_time(schedule.schedule_expression, schedule.schedule_expression_timezone, after=now)
        if is_due:
            coming = coming and max(coming, now + self._min_pause)
        self._next[schedule.arn] = (expression, coming)
        if is_due and due is not None:
            self._fire(schedule, due)

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


def refuse_invalid_expressions() -> None:
    """Refuse what EventBridge Scheduler refuses of CreateSchedule and UpdateSchedule, and moto 5.2.5 keeps."""
    from moto.scheduler.exceptions import ValidationException
    from moto.scheduler.models import EventBridgeSchedulerBackend

    def checked(present: Callable[..., Any]) -> Callable[..., Any]:
        def change(backend: Any, **settings: Any) -> Any:
            expression = settings["schedule_expression"]
            try:
                schedule_expressions.parse(expression)
            except InvalidScheduleExpression:
                raise ValidationException(f"Invalid Schedule Expression {expression}.") from None
            zone = settings["schedule_expression_timezone"]
            try:
                schedule_expressions.parse_time_zone(zone or "UTC")
            except InvalidScheduleExpression:  # no recording shows AWS's words
                raise ValidationException(f"Invalid Schedule Expression Timezone {zone}.") from None
            return present(backend, **settings)

        return change

    for operation in ("create_schedule", "update_schedule"):
        replace(EventBridgeSchedulerBackend, operation, checked(getattr(EventBridgeSchedulerBackend, operation)))


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


def _schedules() -> Iterable[Any]:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.scheduler.models import scheduler_backends

    for backend in list(scheduler_backends[DEFAULT_ACCOUNT_ID].values()):
        for group in list(backend.schedule_groups.values()):
            yield from list(group.schedules.values())
