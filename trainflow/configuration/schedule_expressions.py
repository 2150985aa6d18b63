"""Schedule expressions of EventBridge Scheduler: `rate(…)`, `cron(…)` and `at(…)`, and the times that they mean.

The grammar is the documented one, checked against requests that AWS accepted and refused
(tests/assets/schedule_expressions.yaml). Forms that are neither documented nor known to be accepted are refused, since
AWS would refuse them when the stack is deployed.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

MAX_LENGTH = 256
"""Characters of an expression (EventBridge Scheduler API reference, CreateSchedule)."""

FORMS = "rate(<number> minutes|hours|days), cron(<six fields>) or at(<yyyy-mm-ddThh:mm:ss>)"

RATE = re.compile(r"rate\(([1-9][0-9]*) (minute|hour|day)s?\)")
"""Singular and plural units are accepted with every number; EventBridge *rules* are stricter."""
CRON = re.compile(r"cron\((\S.*\S|\S)\)")
AT = re.compile(r"at\((\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})\)", re.ASCII)

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
"""AWS counts the days of the week from Sunday = 1."""

NOT_OF_IANA = ("Factory", "localtime", "posixrules")
"""Files among the time zones of a machine that are not zones of the IANA database."""

DayRule = Callable[[date], bool]
"""Whether a day is meant by the two fields of days."""


class InvalidScheduleExpression(ValueError):
    """EventBridge Scheduler would refuse the expression or the time zone; the message says why."""


@dataclass(frozen=True)
class Rate:
    """Times at a fixed distance from each other."""

    period: timedelta

    def next_after(self, after: datetime, _zone: tzinfo) -> datetime | None:
        """The next time, if the last one was `after`; None if the calendar ends before."""
        try:
            return after + self.period
        except OverflowError:
            return None


@dataclass(frozen=True)
class At:
    """One time, on the clock of a time zone."""

    moment: datetime

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """The time, unless it has passed."""
        moment = self.moment.replace(tzinfo=zone).astimezone(UTC)
        return moment if moment > after else None


@dataclass(frozen=True)
class Cron:
    """Times on the clock of a time zone that six fields mean."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    years: frozenset[int]
    is_day: DayRule

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """The next time after a time; None if the last one has passed.

        A time that the clock skips in spring is left out, and a time that it shows twice in autumn is meant once
        (EventBridge Scheduler user guide, "Daylight savings time").
        """
        day, last_year = after.astimezone(zone).date(), max(self.years)
        while day.year <= last_year:
            if day.year not in self.years:
                day = date(day.year + 1, 1, 1)
            elif day.month not in self.months:
                day = _first_of_next_month(day)
            elif (found := self._first_of_day(day, after, zone)) is not None:
                return found
            else:
                day += timedelta(days=1)
        return None

    def _first_of_day(self, day: date, after: datetime, zone: tzinfo) -> datetime | None:
        if not self.is_day(day):
            return None
        for hour in self.hours:
            for minute in self.minutes:
                moment = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                exact = moment.astimezone(UTC)
                if exact > after and exact.astimezone(zone).replace(tzinfo=None) == moment.replace(tzinfo=None):
                    return exact
        return None


Times = Rate | At | Cron


def next_time(expression: str, time_zone: str, *, after: datetime) -> datetime | None:
    """The next time of a schedule; None if the last one has passed.

    Args:
        expression: `cron(…)`, `rate(…)` or `at(…)`.
        time_zone: IANA name of the zone of the expression.
        after: A time with a time zone.

    Raises:
        InvalidScheduleExpression: If EventBridge Scheduler would refuse the expression or the time zone.
    """
    return parse(expression).next_after(after, parse_time_zone(time_zone))


def parse_time_zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name.

    Raises:
        InvalidScheduleExpression: If the zone does not exist.
    """
    try:
        if name in _zone_names():
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise InvalidScheduleExpression(f"{name!r} is not an IANA time zone such as Europe/Berlin")


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones() - {*NOT_OF_IANA})


def parse(expression: str) -> Times:
    """The times that an expression means.

    Raises:
        InvalidScheduleExpression: If EventBridge Scheduler would refuse the expression.
    """
    if len(expression) > MAX_LENGTH:
        raise InvalidScheduleExpression(f"an expression has at most {MAX_LENGTH} characters, not {len(expression)}")
    if expression.startswith("rate("):
        return _rate(expression)
    if expression.startswith("at("):
        return _at(expression)
    if found := CRON.fullmatch(expression):
        return _cron(found[1])
    raise InvalidScheduleExpression(f"{expression!r} is none of {FORMS}")


def _rate(expression: str) -> Rate:
    found = RATE.fullmatch(expression)
    if found is None:
        raise InvalidScheduleExpression(
            f"{expression!r} is not a rate: write rate(<positive number> <minutes, hours or days>), "
            "such as rate(7 days)"
        )
    try:
        return Rate(timedelta(**{f"{found[2]}s": int(found[1])}))
    except OverflowError:
        raise InvalidScheduleExpression(f"{expression!r} is longer than {timedelta.max.days} days") from None


def _at(expression: str) -> At:
    found = AT.fullmatch(expression)
    if found is None:
        raise InvalidScheduleExpression(
            f"{expression!r} is not a time: write at(yyyy-mm-ddThh:mm:ss), without a zone, "
            "such as at(2027-01-01T00:00:00)"
        )
    try:
        return At(datetime(*map(int, found.groups())))  # type: ignore[arg-type]
    except ValueError as error:
        raise InvalidScheduleExpression(f"{expression!r} is not a time of the calendar: {error}") from None


@dataclass(frozen=True)
class Field:
    """The values that one field of a cron expression may have."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()
    """Names of the values, from the first value on."""
    has_steps: bool = True

    def values(self, text: str) -> frozenset[int]:
        """The values that a field matches.

        Raises:
            InvalidScheduleExpression: If it is not a list of values, ranges and steps.
        """
        return frozenset().union(*(self._values(part, is_alone=part == text) for part in text.split(",")))

    def _values(self, part: str, *, is_alone: bool) -> range:
        span, slash, step = part.partition("/")
        if span == "*" and (slash or is_alone):
            first, last = self.first, self.last
        elif "-" in span:
            first, last = (self.value(end, part) for end in span.split("-", 1))
        else:
            first = self.value(span, part)
            last = self.last if slash else first
        if last < first:
            raise self.refused(part, "ends before it begins; write two ranges with a comma between them")
        return range(first, last + 1, self._step(step, part) if slash else 1)

    def _step(self, step: str, part: str) -> int:
        if not self.has_steps:
            raise self.refused(part, "has a step, which this field cannot have")
        if not re.fullmatch("[0-9]{1,4}", step) or not 1 <= int(step) <= self.last:
            raise self.refused(part, f"has a step that is not from 1 to {self.last}")
        return int(step)

    def value(self, text: str, part: str) -> int:
        """One value, as a number or a name."""
        if text in self.names:
            return self.first + self.names.index(text)
        if re.fullmatch("[0-9]{1,4}", text) and self.first <= int(text) <= self.last:
            return int(text)
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        raise self.refused(part, f"is not from {self.first} to {self.last}{names}")

    def refused(self, part: str, why: str) -> InvalidScheduleExpression:
        """The error for a part of the field."""
        return InvalidScheduleExpression(f"the field {self.name} of cron(…): {part!r} {why}")


MINUTE = Field("minutes", 0, 59)
HOUR = Field("hours", 0, 23)
DAY = Field("day-of-month", 1, 31)
MONTH = Field("month", 1, 12, MONTHS)
WEEKDAY = Field("day-of-week", 1, 7, DAYS, has_steps=False)
YEAR = Field("year", 1970, 2199)


def _cron(text: str) -> Cron:
    fields = re.split(" +", text)
    if len(fields) != 6:
        raise InvalidScheduleExpression(
            f"cron(…) has six fields, minutes hours day-of-month month day-of-week year, and not {len(fields)}; "
            "a weekly one is cron(0 2 ? * SAT *)"
        )
    minute, hour, day, month, weekday, year = fields
    if (day == "?") == (weekday == "?"):
        raise InvalidScheduleExpression(
            f"cron({text}): exactly one of the fields day-of-month ({day}) and day-of-week ({weekday}) has to be '?'"
        )
    months = MONTH.values(month)
    return Cron(
        minutes=tuple(sorted(MINUTE.values(minute))),
        hours=tuple(sorted(HOUR.values(hour))),
        months=months,
        years=YEAR.values(year),
        is_day=_weekday_rule(weekday) if day == "?" else _day_rule(day, months),
    )


def _day_rule(text: str, months: Collection[int]) -> DayRule:
    """The days of some months: a list of numbers, `L` (the last one), `15W` (the nearest weekday), `LW`."""
    rule = _day_of_month_rule(text)
    leap_year = (date(2000, 1, 1) + timedelta(days=number) for number in range(366))
    if not any(day.month in months and rule(day) for day in leap_year):
        raise DAY.refused(text, "is a day that none of the months has, so the schedule would never fire")
    return rule


def _day_of_month_rule(text: str) -> DayRule:
    if text == "L":
        return lambda day: day.day == _days_in(day)
    if text == "LW":
        return lambda day: day == _nearest_weekday(day.replace(day=_days_in(day)))
    if found := re.fullmatch("([0-9]{1,2})W", text):
        number = DAY.value(found[1], text)
        return lambda day: number <= _days_in(day) and day == _nearest_weekday(day.replace(day=number))
    numbers = DAY.values(text)
    return lambda day: day.day in numbers


def _weekday_rule(text: str) -> DayRule:
    """The days of a week: a list of days, `L` (Saturday), `6L` (a month's last Friday), `3#2` (its second Tuesday)."""
    if text == "L":
        text = "SAT"
    if found := re.fullmatch("([0-9A-Z]+)L", text):
        last = WEEKDAY.value(found[1], text)
        return lambda day: _cron_weekday(day) == last and day.day + 7 > _days_in(day)
    if found := re.fullmatch("([0-9A-Z]+)#([1-5])", text):
        nth, number = WEEKDAY.value(found[1], text), int(found[2])
        return lambda day: _cron_weekday(day) == nth and (day.day - 1) // 7 + 1 == number
    numbers = WEEKDAY.values(text)
    return lambda day: _cron_weekday(day) in numbers


def _nearest_weekday(day: date) -> date:
    """The weekday that is nearest to a day, in the same month."""
    if day.isoweekday() == 6:
        return day - timedelta(days=1) if day.day > 1 else day + timedelta(days=2)
    if day.isoweekday() == 7:
        return day + timedelta(days=1) if day.day < _days_in(day) else day - timedelta(days=2)
    return day


def _cron_weekday(day: date) -> int:
    return day.isoweekday() % 7 + 1


def _days_in(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _first_of_next_month(day: date) -> date:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)
