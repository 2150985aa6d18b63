"""A metric's values over the steps; reading a screen's worth takes a time that does not depend on their number.

It also keeps the lowest, the highest and the sum of each 16 values, of each 256, and so on: a bucket of any size is
computed from a few of these. Values that are not finite are kept apart, since a curve cannot show them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

FACTOR = 16
"""Values of one level in a value of the next."""

LARGEST = 1e150
"""Largest value that has a place in a curve: sums of a million of them are still numbers."""

SPLITS = (1, 2, 4, 8)
"""A bucket has a power of two of values, so that it stays the same while the series grows."""


MAX_SIZES, MAX_KNOWN = 4, 10_000
"""Number of bucket sizes whose buckets are kept after reading, and maximum number of buckets of one size: a few windows
on a curve."""


class Bucket(NamedTuple):
    """Neighbouring values of a series."""

    x: float
    """Position of the middle one."""
    low: float
    high: float
    mean: float


@dataclass
class _Level:
    """Lowest, highest and sum of each `unit` values."""

    unit: int
    low: array[float] = field(default_factory=lambda: array("d"))
    high: array[float] = field(default_factory=lambda: array("d"))
    total: array[float] = field(default_factory=lambda: array("d"))

    def shorten(self, count: int) -> None:
        del self.low[count // self.unit :], self.high[count // self.unit :], self.total[count // self.unit :]


class Series:
    """Values at increasing positions."""

    def __init__(self) -> None:
        self._x, self._y = array("d"), array("d")
        self._levels: list[_Level] = []
        self._odd: list[float] = []
        self._known: dict[int, dict[int, Bucket]] = {}

    def __len__(self) -> int:
        return len(self._x)

    @property
    def not_finite(self) -> Sequence[float]:
        """Positions of the values that are infinite or no numbers."""
        return self._odd

    @property
    def last(self) -> float | None:
        """The newest finite value."""
        return self._y[-1] if self._y else None

    @property
    def first_x(self) -> float | None:
        """Position of the first finite value."""
        return self._x[0] if self._x else None

    @property
    def last_x(self) -> float | None:
        """Position of the newest finite value."""
        return self._x[-1] if self._x else None

    def newest(self, last: float = math.inf) -> tuple[float, float] | None:
        """Position and value of the newest finite value up to a position."""
        count = bisect_right(self._x, last)
        return (self._x[count - 1], self._y[count - 1]) if count else None

    def extend(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Add values behind the others.

        Args:
            xs: Positions, increasing, beyond those that are there.
            ys: Their values.
        """
        # Of a sum alone can be told in C, for all values at once, that none is infinite or no number.
        if ys and math.isfinite(sum(ys)) and _has_place(min(ys)) and _has_place(max(ys)):
            self._x.extend(xs)
            self._y.extend(ys)
        else:
            for x, y in zip(xs, ys, strict=True):
                if _has_place(y):
                    self._x.append(x)
                    self._y.append(y)
                else:
                    self._odd.append(x)
        self._summarize()

    def cut(self, x: float) -> None:
        """Remove the values from a position on."""
        count = bisect_left(self._x, x)
        del self._x[count:], self._y[count:]
        del self._odd[bisect_left(self._odd, x) :]
        for level in self._levels:
            level.shorten(count)
        self._known.clear()

    def buckets(self, at_most: int, *, first: float = -math.inf, last: float = math.inf) -> list[Bucket]:
        """The values between two positions, each on its own if they are few enough.

        Args:
            at_most: Most buckets, give or take the two at the ends.
            first: Where to begin.
            last: Where to end.
        """
        begin, end = bisect_left(self._x, first), bisect_right(self._x, last)
        size = _bucket_size(end - begin, at_most)
        whole, known = self._whole_buckets(size), self._known_buckets(size)
        found = []
        for start, stop in _stretches(begin, end, size):
            if start % size or stop - start < size:
                found.append(self._bucket(start, stop))
                continue
            bucket = known.get(start)
            if bucket is None:
                bucket = known[start] = whole(start)
            found.append(bucket)
        return found

    def _known_buckets(self, size: int) -> dict[int, Bucket]:
        """Buckets of a size that were read before, by their beginnings: they stay the same while the series grows."""
        known = self._known.get(size, {})
        if not known or len(known) > MAX_KNOWN:
            if len(self._known) >= MAX_SIZES:
                self._known.clear()
            known = self._known[size] = {}
        return known

    def _whole_buckets(self, size: int) -> Callable[[int], Bucket]:
        """Reads a bucket that begins at a multiple of its size: a few neighbours of one level."""
        x, low, high, total, unit = self._x, self._y, self._y, self._y, 1
        for level in self._levels:
            if size % level.unit:
                break
            low, high, total, unit = level.low, level.high, level.total, level.unit
        split = size // unit

        def bucket(start: int) -> Bucket:
            first = start // unit
            last = first + split
            lowest, highest = min(low[first:last]), max(high[first:last])
            mean = sum(total[first:last]) / size
            return Bucket(x[start + (size - 1) // 2], lowest, highest, min(highest, max(lowest, mean)))

        return bucket

    def _bucket(self, start: int, stop: int) -> Bucket:
        x = self._x[(start + stop - 1) // 2]
        parts = list(self._parts(start, stop))
        lowest, highest = min(part[0] for part in parts), max(part[1] for part in parts)
        mean = sum(part[2] for part in parts) / (stop - start)
        return Bucket(x, lowest, highest, min(highest, max(lowest, mean)))  # a rounded mean may lie outside

    def _parts(self, start: int, stop: int) -> Iterator[tuple[float, float, float]]:
        """Lowest, highest and sum of stretches that make the whole, each read at the level with the largest units."""
        while start < stop:
            low, high, total, unit, end = self._y, self._y, self._y, 1, min(stop, _next(start, FACTOR))
            for level in self._levels:
                if start % level.unit or start + level.unit > min(stop, len(level.total) * level.unit):
                    break
                low, high, total, unit = level.low, level.high, level.total, level.unit
                end = min(stop // unit * unit, len(level.total) * unit, _next(start, unit * FACTOR))
            part = slice(start // unit, end // unit)
            yield min(low[part]), max(high[part]), sum(total[part])
            start = end

    def _summarize(self) -> None:
        low, high, total, unit = self._y, self._y, self._y, FACTOR
        for depth in range(64):
            if len(low) < FACTOR:
                return
            if depth == len(self._levels):
                self._levels.append(_Level(unit))
            level = self._levels[depth]
            for start in range(len(level.low) * FACTOR, len(low) - FACTOR + 1, FACTOR):
                level.low.append(min(low[start : start + FACTOR]))
                level.high.append(max(high[start : start + FACTOR]))
                level.total.append(sum(total[start : start + FACTOR]))
            low, high, total, unit = level.low, level.high, level.total, unit * FACTOR


def _next(value: int, unit: int) -> int:
    """The next multiple of a unit behind a value."""
    return (value // unit + 1) * unit


def _has_place(value: float) -> bool:
    return -LARGEST <= value <= LARGEST


def _bucket_size(count: int, at_most: int) -> int:
    """The smallest bucket size that covers all values with at most `at_most` buckets."""
    unit = 1
    while True:
        for split in SPLITS:
            if unit * split * at_most >= count:
                return unit * split
        unit *= FACTOR


def _stretches(begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each bucket; all but those at the ends are multiples of the size."""
    start = begin
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield start, stop
        start = stop
