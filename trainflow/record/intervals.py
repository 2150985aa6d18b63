"""Arithmetic on intervals of time, to find out when any pod of a run was running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, order=True)
class Interval:
    """A half-open stretch of time; empty when it ends before it begins."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Length in seconds, never negative."""
        return max(0.0, (self.end - self.start).total_seconds())

    def clipped_to(self, other: Interval) -> Interval:
        """The part of this interval that lies within `other`."""
        return Interval(max(self.start, other.start), min(self.end, other.end))


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points in time as disjoint intervals in their order; empty ones are dropped."""
    joined: list[Interval] = []
    for interval in sorted(interval for interval in intervals if interval.start < interval.end):
        if joined and interval.start <= joined[-1].end:
            joined[-1] = Interval(joined[-1].start, max(joined[-1].end, interval.end))
        else:
            joined.append(interval)
    return joined


def covered_seconds(window: Interval, intervals: Sequence[Interval]) -> float:
    """Seconds of `window` that lie within at least one of the intervals."""
    return sum(interval.seconds for interval in union(interval.clipped_to(window) for interval in intervals))


def uncovered_seconds(window: Interval, intervals: Sequence[Interval]) -> float:
    """Seconds of `window` that lie within none of the intervals."""
    return max(0.0, window.seconds - covered_seconds(window, intervals))
