from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import recorded, statistics_of

from trainflow.observed.step import Step
from trainflow.record.published import PeriodStatistics, compare, latest_of_each_step
from trainflow.workflow.run_record import MetricsPublished

START = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)


def line(step: int, *, second: int = 0, loss: float | None = None) -> Step:
    return Step(
        logged_at=START + timedelta(seconds=second),
        epoch=0,
        step=step,
        loss=round(9.0 * 0.97**step, 4) if loss is None else loss,
        learning_rate=1e-4,
        throughput=100.0,
    )


def per_minute(data: Sequence[Step]) -> list[PeriodStatistics]:
    minutes: dict[datetime, list[float]] = {}
    for datum in data:
        minutes.setdefault(datum.logged_at.replace(second=0), []).append(datum.loss)
    return [PeriodStatistics(minute, 60, len(losses), sum(losses)) for minute, losses in minutes.items()]


THREE_A_SECOND = [line(step, second=step // 3) for step in range(1, 61)]


def test_everything_published_once_has_no_gap_and_no_duplicate() -> None:
    assert compare(THREE_A_SECOND, statistics_of(THREE_A_SECOND)) == MetricsPublished(
        datapoints=60, first_step=1, last_step=60, gaps=0, duplicates=0
    )


def test_a_missing_datum_is_a_gap() -> None:
    data = [step for step in THREE_A_SECOND if step.step != 31]

    assert compare(THREE_A_SECOND, statistics_of(data)) == MetricsPublished(
        datapoints=59, first_step=1, last_step=60, gaps=1, duplicates=0
    )


def test_a_doubled_datum_is_a_duplicate() -> None:
    data = [*THREE_A_SECOND, THREE_A_SECOND[30]]

    assert compare(THREE_A_SECOND, statistics_of(data)) == MetricsPublished(
        datapoints=61, first_step=1, last_step=60, gaps=0, duplicates=1
    )


def test_a_missing_and_a_doubled_datum_in_the_same_second_do_not_hide_each_other() -> None:
    data = [line(1), line(3), line(3)]

    published = compare([line(1), line(2), line(3)], statistics_of(data))

    assert published == MetricsPublished(datapoints=3, first_step=1, last_step=3, gaps=1, duplicates=1)


def test_the_sum_identifies_the_missing_step_of_a_second() -> None:
    steps = [line(1), line(2), line(3)]

    assert compare(steps, statistics_of(steps[1:])).first_step == 2
    assert compare(steps, statistics_of(steps[:-1])).last_step == 2


def test_data_without_a_line_are_duplicates() -> None:
    data = [*THREE_A_SECOND, line(99, second=500)]

    assert compare(THREE_A_SECOND, statistics_of(data)).duplicates == 1


def test_nothing_published_is_all_gaps() -> None:
    assert compare(THREE_A_SECOND, []) == MetricsPublished(datapoints=0, gaps=60, duplicates=0)


def test_of_a_restarted_job_a_replayed_step_may_be_published_once_or_is_a_duplicate() -> None:
    before = [line(step, second=step) for step in (1, 2, 3)]
    again = [line(step, second=step + 10, loss=5.0) for step in (3, 4)]

    once = compare(before + again, statistics_of([*before, again[1]]))
    twice = compare(before + again, statistics_of(before + again))

    assert (once.gaps, once.duplicates) == (0, 0)
    assert (twice.gaps, twice.duplicates) == (0, 1)


def test_a_loss_that_is_no_number_cannot_be_published_and_is_no_gap() -> None:
    steps = [line(1), line(2, loss=math.nan), line(3), line(4, loss=math.inf)]

    assert compare(steps, statistics_of([steps[0], steps[2]])) == MetricsPublished(
        datapoints=2, first_step=1, last_step=3, gaps=0, duplicates=0, non_finite=2
    )


def test_a_step_that_was_finite_when_it_was_repeated_is_published() -> None:
    steps = [line(1), line(2, loss=math.nan), line(2, second=9)]

    assert compare(steps, statistics_of([steps[0], steps[2]])) == MetricsPublished(
        datapoints=2, first_step=1, last_step=2, gaps=0, duplicates=0
    )


@pytest.mark.parametrize("unread", [0, 1, 7])
@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_a_killed_and_resumed_job_has_no_gap_and_no_duplicate(unread: int, drift: float) -> None:
    """Ten steps a second; the job ends at step 45 and its successor repeats from 31, with or without equal losses.

    Every step is published once: the first job's last `unread` steps by the lines of the second.
    """
    before = [line(step, second=step // 10, loss=9 - step / 100) for step in range(1, 46)]
    after = [line(step, second=(step + 20) // 10, loss=9 - step / 100 - drift) for step in range(31, 101)]
    data = [*before[: 45 - unread], *after[15 - unread :]]

    for period_seconds in (1, 60):
        published = compare(before + after, statistics_of(data, period_seconds=period_seconds))
        assert published == MetricsPublished(datapoints=100, first_step=1, last_step=100, gaps=0, duplicates=0)


def test_the_repeats_of_a_resumed_job_do_not_hide_a_gap_or_a_duplicate() -> None:
    before = [line(step, second=step // 10) for step in range(1, 46)]
    after = [line(step, second=(step + 20) // 10) for step in range(31, 101)]
    data = [*before, *after[15:]]

    lost = compare(before + after, statistics_of([datum for datum in data if datum.step != 60]))
    doubled = compare(before + after, statistics_of([*data, after[10]]))

    assert (lost.gaps, lost.duplicates) == (1, 0)
    assert (doubled.gaps, doubled.duplicates) == (0, 1)


def test_old_runs_are_compared_by_the_minute() -> None:
    steps = [line(step, second=step) for step in range(1, 600)]

    assert compare(steps, per_minute(steps)).gaps == 0
    assert compare(steps, per_minute([step for step in steps if step.step != 300])).gaps == 1
    assert compare(steps, per_minute([*steps, steps[300]])).duplicates == 1


def test_a_period_that_cannot_be_explained_is_still_counted() -> None:
    steps = [line(step) for step in range(1, 101)]
    wrong_sum = PeriodStatistics(START, 60, 90, 12345.0)

    assert compare(steps, [wrong_sum]) == MetricsPublished(
        datapoints=90, first_step=1, last_step=90, gaps=10, duplicates=0
    )


def test_the_last_line_of_a_step_counts() -> None:
    steps = latest_of_each_step([line(1), line(2), replace(line(1), loss=1.5)])

    assert [(step.step, step.loss) for step in steps] == [(1, 1.5), (2, line(2).loss)]


@given(st.lists(st.integers(0, 2), min_size=30, max_size=30))
def test_gaps_and_duplicates_are_counted_whatever_was_lost_or_sent_twice(copies: list[int]) -> None:
    """One step a second: each second's count alone tells what happened to its step."""
    steps = [line(step, second=step) for step in range(1, 31)]
    data = [step for step, times in zip(steps, copies, strict=True) for _ in range(times)]

    published = compare(steps, statistics_of(data))

    assert (published.gaps, published.duplicates) == (copies.count(0), copies.count(2))
    assert published.datapoints == sum(copies)


def test_a_recorded_run_agrees_with_itself() -> None:
    lines = recorded("succeeded").lines

    assert compare(lines, statistics_of(lines)).datapoints == 200
