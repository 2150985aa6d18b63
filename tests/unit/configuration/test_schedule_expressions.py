"""Expressions that EventBridge Scheduler accepts are accepted, those that it refuses are refused with the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainflow.configuration.schedule_expressions import (
    DAYS,
    MONTHS,
    InvalidScheduleExpression,
    next_time,
    parse,
    parse_time_zone,
)

FACTS = yaml.safe_load(Path("tests/assets/schedule_expressions.yaml").read_text())
TUESDAY = datetime(2026, 10, 20, 12, 0, tzinfo=UTC)


def facts(kind: str) -> list[Any]:
    return [expression for group in FACTS[kind] for expression in group["expressions"]]


@pytest.mark.parametrize("expression", facts("accepted"))
def test_what_aws_accepts_is_accepted(expression: str) -> None:
    parse(expression)


@pytest.mark.parametrize("expression", facts("refused"))
def test_what_aws_refuses_is_refused(expression: str) -> None:
    with pytest.raises(InvalidScheduleExpression):
        parse(expression)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (
            "rate(10 minutess)",
            "'rate(10 minutess)' is not a rate: write rate(<positive number> <minutes, hours or days>)",
        ),
        ("cron(0 2 ? * SAT)", "six fields, minutes hours day-of-month month day-of-week year, and not 5"),
        ("cron(0 8 1 * 2 *)", "exactly one of the fields day-of-month (1) and day-of-week (2) has to be '?'"),
        ("cron(71 8 1 * ? *)", "the field minutes of cron(…): '71' is not from 0 to 59"),
        ("cron(0 8 ? FOO MON *)", "the field month of cron(…): 'FOO' is not from 1 to 12 or JAN-DEC"),
        ("cron(0 8 ? * mon *)", "the field day-of-week of cron(…): 'mon' is not from 1 to 7 or SUN-SAT"),
        ("cron(0 22-5 * * ? *)", "'22-5' ends before it begins; write two ranges with a comma between them"),
        ("cron(*/60 * * * ? *)", "'*/60' has a step that is not from 1 to 59"),
        ("cron(0 8 ? * 2/2 *)", "'2/2' has a step, which this field cannot have"),
        ("cron(0 8 30 2 ? *)", "'30' is a day that none of the months has, so the schedule would never fire"),
        ("at(2027-02-30T00:00:00)", "is not a time of the calendar: day is out of range for month"),
        ("at(2027-01-01T00:00:00Z)", "write at(yyyy-mm-ddThh:mm:ss), without a zone"),
        ("every day", "'every day' is none of rate(<number> minutes|hours|days), cron(<six fields>) or at("),
        (f"cron({'0,' * 200}0 8 1 * ? *)", "at most 256 characters, not 417"),
        ("rate(99999999999 days)", "is longer than 999999999 days"),
    ],
)
def test_the_reason_names_the_field_and_the_value(expression: str, reason: str) -> None:
    with pytest.raises(InvalidScheduleExpression) as refused:
        parse(expression)
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC", "America/New_York", "Asia/Kolkata", "Etc/GMT+5"])
def test_zones_of_iana_are_known(name: str) -> None:
    assert parse_time_zone(name).key == name


@pytest.mark.parametrize(
    "name", ["", "Europe/Atlantis", "../etc/passwd", "/etc/localtime", "localtime", "posix/UTC", "\0"]
)
def test_other_names_are_no_zones(name: str) -> None:
    with pytest.raises(InvalidScheduleExpression, match=r"IANA time zone.*Europe/Berlin"):
        parse_time_zone(name)


@pytest.mark.parametrize(
    ("expression", "due"),
    [
        ("rate(5 minutes)", "2026-10-20T12:05"),
        ("rate(1 hour)", "2026-10-20T13:00"),
        ("rate(2 days)", "2026-10-22T12:00"),
        ("at(2026-10-20T15:00:00)", "2026-10-20T13:00"),
        ("cron(0 2 ? * SAT *)", "2026-10-24T00:00"),
        ("cron(0 2 ? * 7 *)", "2026-10-24T00:00"),  # AWS counts from Sunday = 1
        ("cron(0 2 ? * L *)", "2026-10-24T00:00"),
        ("cron(0 2 ? * 2-6 *)", "2026-10-21T00:00"),
        ("cron(0 2 ? * 2#1 *)", "2026-11-02T01:00"),  # summer time has ended
        ("cron(0 2 ? * TUE#5 *)", "2026-12-29T01:00"),
        ("cron(0 2 ? * 6L *)", "2026-10-30T01:00"),
        ("cron(0/15 * * * ? *)", "2026-10-20T12:15"),
        ("cron(0 0/6 * * ? *)", "2026-10-20T16:00"),
        ("cron(0 2 L * ? *)", "2026-10-31T01:00"),
        ("cron(0 2 LW * ? *)", "2026-10-30T01:00"),
        ("cron(0 2 24W * ? *)", "2026-10-23T00:00"),  # a Saturday: the Friday before
        ("cron(0 2 1W 11 ? *)", "2026-11-02T01:00"),  # a Sunday: the Monday after
        ("cron(0 2 1W 8 ? *)", "2027-08-02T00:00"),  # Sunday
        ("cron(0 2 1W 5 ? 2027)", "2027-05-03T00:00"),  # Saturday: the days before are of another month
        ("cron(0 2 31W 10 ? 2027)", "2027-10-29T00:00"),  # Sunday: the day after is of another month
        ("cron(0 9 1 1 ? 2028)", "2028-01-01T08:00"),
        ("cron(0 9 29 2 ? *)", "2028-02-29T08:00"),
        ("cron(30 2 28 3 ? *)", "2028-03-28T00:30"),  # in 2027, the clock skips this time
        ("cron(30 2 25 10 ? *)", "2026-10-25T00:30"),  # the clock shows it twice
    ],
)
def test_an_expression_comes_due_by_the_clock_of_its_time_zone(expression: str, due: str) -> None:
    assert next_time(expression, "Europe/Berlin", after=TUESDAY) == datetime.fromisoformat(due).replace(tzinfo=UTC)


def test_a_time_that_the_clock_shows_twice_is_meant_once() -> None:
    first = next_time("cron(30 2 25 10 ? *)", "Europe/Berlin", after=TUESDAY)
    assert first is not None
    following = next_time("cron(30 2 25 10 ? *)", "Europe/Berlin", after=first)
    assert following == datetime(2027, 10, 25, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "expression",
    ["at(2026-10-20T14:00:00)", "cron(0 9 1 1 ? 2025)", "cron(0 0 29 2 ? 2197-2199)", "rate(999999999 days)"],
)
def test_a_time_that_never_comes_again_is_none(expression: str) -> None:
    assert next_time(expression, "Europe/Berlin", after=TUESDAY) is None


def numbers(first: int, last: int, *names: str) -> st.SearchStrategy[str]:
    """Lists of values, ranges and steps of one field."""
    value = st.integers(first, last).map(str)
    single = value | st.sampled_from(names) if names else value
    spans = st.tuples(st.integers(first, last), st.integers(first, last)).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.integers(1, last).map(str)
    stepped = st.tuples(st.just("*") | value | spans, steps).map("/".join)
    return st.just("*") | st.lists(single | spans | stepped, min_size=1, max_size=4).map(",".join)


WEEKDAYS = numbers(1, 7, *DAYS).filter(lambda text: "/" not in text)
DAY = numbers(1, 31) | st.sampled_from(["L", "LW"]) | st.integers(1, 31).map(lambda day: f"{day}W")
DAY_OF_WEEK = (
    WEEKDAYS
    | st.just("L")
    | st.sampled_from([*DAYS, *"1234567"]).map(lambda day: f"{day}L")
    | st.tuples(st.sampled_from([*DAYS, *"1234567"]), st.sampled_from("12345")).map("#".join)
)
BOTH_DAYS = DAY.map(lambda day: (day, "?")) | DAY_OF_WEEK.map(lambda day: ("?", day))


@st.composite
def crons(draw: st.DrawFn) -> str:
    """Expressions of the documented grammar; any month has one of the days."""
    day, weekday = draw(BOTH_DAYS)
    month = draw(numbers(1, 12, *MONTHS)) if weekday != "?" or "L" in day else "*"
    fields = (draw(numbers(0, 59)), draw(numbers(0, 23)), day, month, weekday, draw(numbers(1970, 2199)))
    return f"cron({' '.join(fields)})"


moments = st.datetimes(datetime(2020, 1, 1), datetime(2198, 12, 31), timezones=st.just(UTC))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])


@settings(deadline=None)
@given(crons(), zones, moments)
@example("cron(0 0 29 2 ? *)", "UTC", datetime(2096, 3, 1, tzinfo=UTC))  # 2100 is no leap year
def test_every_documented_cron_expression_is_accepted_and_its_next_time_is_found(
    expression: str, zone: str, after: datetime
) -> None:
    """The next time is later, and on the clock of the zone a whole minute of a day that the fields mean."""
    if len(expression) > 256:
        return
    cron: Any = parse(expression)
    found = next_time(expression, zone, after=after)
    if found is not None:
        local = found.astimezone(ZoneInfo(zone))
        assert found > after
        assert (local.second, local.microsecond) == (0, 0)
        assert local.minute in cron.minutes
        assert local.hour in cron.hours
        assert (local.year in cron.years, local.month in cron.months) == (True, True)
        assert cron.is_day(local.date())


@settings(deadline=None, max_examples=50)
@given(numbers(0, 59), numbers(0, 23), moments)
def test_no_earlier_time_is_left_out(minute: str, hour: str, after: datetime) -> None:
    """Compared with each minute of the next day."""
    cron: Any = parse(f"cron({minute} {hour} * * ? *)")
    start = after.replace(second=0, microsecond=0)
    coming = (start + timedelta(minutes=number) for number in range(1, 1442))
    first = next(each for each in coming if each.minute in cron.minutes and each.hour in cron.hours)
    assert cron.next_after(after, UTC) == first


@settings(deadline=None)
@given(st.text(alphabet="cronateM 0123456789*?/,-LW#():T", max_size=40))
def test_any_text_is_accepted_or_refused_by_name(text: str) -> None:
    for expression in (text, f"cron({text})", f"rate({text})", f"at({text})"):
        try:
            next_time(expression, "Europe/Berlin", after=TUESDAY)
        except InvalidScheduleExpression:
            continue
