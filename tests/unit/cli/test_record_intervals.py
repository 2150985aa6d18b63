from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from trainflow.record.intervals import Interval, covered_seconds, uncovered_seconds, union

START = datetime(2026, 11, 21, tzinfo=UTC)


def interval(start: int, end: int) -> Interval:
    return Interval(START + timedelta(seconds=start), START + timedelta(seconds=end))


intervals = st.lists(st.builds(interval, st.integers(0, 60), st.integers(0, 60)), max_size=12)
windows = st.builds(interval, st.integers(0, 60), st.integers(0, 60))


def seconds_within(window: Interval, several: list[Interval]) -> int:
    """The same by counting seconds one by one."""
    moments = (START + timedelta(seconds=second) for second in range(61))
    return sum(
        window.start <= moment < window.end and any(one.start <= moment < one.end for one in several)
        for moment in moments
    )


def test_touching_and_overlapping_intervals_become_one() -> None:
    assert union([interval(5, 9), interval(0, 3), interval(3, 6), interval(20, 21)]) == [
        interval(0, 9),
        interval(20, 21),
    ]


@given(intervals)
def test_a_union_is_disjoint_ordered_and_unchanged_by_another_union(several: list[Interval]) -> None:
    joined = union(several)

    assert all(one.end < other.start for one, other in pairwise(joined))
    assert union(joined) == joined


@given(intervals, windows)
def test_covered_time_is_what_counting_second_by_second_gives(several: list[Interval], window: Interval) -> None:
    assert covered_seconds(window, several) == seconds_within(window, several)


@given(intervals, windows)
def test_covered_and_uncovered_time_make_up_the_window(several: list[Interval], window: Interval) -> None:
    assert covered_seconds(window, several) + uncovered_seconds(window, several) == window.seconds
