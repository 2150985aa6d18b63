"""A screen's worth of a series says the same as the whole series."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.page.series import Bucket, Series

FINITE = st.floats(min_value=-1e9, max_value=1e9)


def series_of(values: Sequence[float], *, pieces: int = 1) -> Series:
    series = Series()
    size = max(1, -(-len(values) // pieces))
    for start in range(0, len(values), size):
        part = values[start : start + size]
        series.extend(range(start, start + len(part)), part)
    return series


@given(st.lists(FINITE, min_size=1, max_size=700), st.integers(2, 60), st.integers(1, 9))
def test_buckets_hold_every_value_once(values: list[float], at_most: int, pieces: int) -> None:
    buckets = series_of(values, pieces=pieces).buckets(at_most)

    assert len(buckets) <= at_most + 1
    assert min(bucket.low for bucket in buckets) == min(values)
    assert max(bucket.high for bucket in buckets) == max(values)
    assert all(bucket.low <= bucket.mean <= bucket.high for bucket in buckets)
    assert [bucket.x for bucket in buckets] == sorted({bucket.x for bucket in buckets})


@given(st.lists(FINITE, min_size=1, max_size=700), st.integers(2, 60))
def test_buckets_are_what_the_values_themselves_give(values: list[float], at_most: int) -> None:
    series = series_of(values)
    size = next(unit for unit in (2**power for power in range(20)) if unit * at_most >= len(values))
    stretches = [values[start : start + size] for start in range(0, len(values), size)]

    buckets = series.buckets(at_most)

    assert [(bucket.low, bucket.high) for bucket in buckets] == [(min(part), max(part)) for part in stretches]
    assert [bucket.mean for bucket in buckets] == pytest.approx([math.fsum(part) / len(part) for part in stretches])


@given(st.lists(FINITE, max_size=600), st.integers(0, 650), st.lists(FINITE, max_size=300))
def test_a_series_that_was_cut_and_went_on_is_the_series_without_the_cut(
    before: list[float], cut: int, after: list[float]
) -> None:
    series = series_of(before)
    series.cut(cut)
    kept = before[:cut]
    series.extend(range(len(kept), len(kept) + len(after)), after)

    assert series.buckets(40) == series_of([*kept, *after]).buckets(40)


def test_a_part_is_shown_in_full_if_it_is_short() -> None:
    values = [float(value % 97) for value in range(10_000)]

    buckets = series_of(values).buckets(50, first=5000, last=5019)

    assert buckets == [Bucket(x, values[x], values[x], values[x]) for x in range(5000, 5020)]


def test_values_that_are_not_finite_have_no_place_in_the_curve_and_are_not_lost() -> None:
    series = Series()
    series.extend([1, 2, 3, 4], [1.0, math.nan, math.inf, 2.0])

    assert [bucket.x for bucket in series.buckets(10)] == [1, 4]
    assert series.not_finite == [2, 3]


def test_a_bucket_stays_the_same_while_the_series_grows() -> None:
    values = [float(value % 13) for value in range(1000)]
    series = series_of(values)
    before = series.buckets(100)

    series.extend(range(1000, 1010), [0.0] * 10)

    assert series.buckets(100)[: len(before) - 1] == before[:-1]


class Counted(array):  # type: ignore[type-arg]
    """An array that counts the values that are read."""

    num_read = 0

    def __getitem__(self, key: Any) -> Any:
        Counted.num_read += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
        return super().__getitem__(key)


@pytest.mark.lengthy
def test_a_screens_worth_of_a_million_values_is_put_together_from_few() -> None:
    series = series_of([float((value * 2654435761) % 1000) for value in range(1_000_000)])
    series._x, series._y = Counted("d", series._x), Counted("d", series._y)
    for level in series._levels:
        level.low, level.high, level.total = (Counted("d", each) for each in (level.low, level.high, level.total))

    buckets = series.buckets(1000)

    assert 400 <= len(buckets) <= 1001
    assert 0 < Counted.num_read < 50 * len(buckets)


@pytest.mark.parametrize("at_most", [7, 50, 300])
def test_buckets_that_were_read_before_are_those_of_a_new_series_after_it_grew_and_was_cut(at_most: int) -> None:
    def value(x: int, salt: int) -> float:
        return float((x * 2654435761 + salt) % 1009)

    series, values = Series(), [value(x, 0) for x in range(1000)]
    series.extend(range(1000), values)
    for first, salt in ((1000, 1), (640, 2), (1201, 3)):  # it goes on, is started again from a checkpoint, goes on
        series.buckets(at_most)
        series.buckets(at_most, first=100, last=400)
        series.cut(first)
        values = [*values[:first], *(value(x, salt) for x in range(first, 1201 if first < 1201 else 1400))]
        series.extend(range(first, len(values)), values[first:])
        fresh = Series()
        fresh.extend(range(len(values)), values)
        assert series.buckets(at_most) == fresh.buckets(at_most)
        assert series.buckets(at_most, first=100, last=400) == fresh.buckets(at_most, first=100, last=400)
