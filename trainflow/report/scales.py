"""Converts values to positions on a page: axis ticks, and points of a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

WIDTH = 1000.0
"""Units across a drawing. The drawing is stretched to its place on the page, so this is resolution, not size."""

TIME_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Distances of ticks on a time axis, in seconds; days beyond."""


@dataclass(frozen=True)
class Scale:
    """Maps `low..high` to `0..1`."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Position of the value, 0 for `low` and 1 for `high`."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    def percent(self, value: float) -> float:
        """The same in percent, with as many digits as a screen can show."""
        return round(100 * min(1.0, max(0.0, self.share(value))), 3)


def nice_ticks(low: float, high: float, *, at_most: int) -> list[float]:
    """Round numbers that cover `low..high` evenly: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        margin = abs(low) * 0.1 or 1.0
        low, high = low - margin, high + margin
    raw = (high - low) / max(1, at_most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def time_ticks(seconds: float, *, at_most: int) -> list[float]:
    """Round times from 0 up to the length of a run, no more than asked for."""
    steps = [step for step in TIME_STEPS if seconds / step <= at_most - 1]
    step = steps[0] if steps else math.ceil(seconds / (at_most - 1) / 86400) * 86400
    return [index * step for index in range(int(seconds / step + 1e-9) + 1)]


def thinned(points: Sequence[tuple[float, float]], limit: int) -> list[tuple[float, float]]:
    """Reduce a curve to about `limit` points without changing its appearance: keep the lowest and highest of each part.

    Values that are not numbers remain as gaps if they fill a whole stretch.
    """
    if len(points) <= limit:
        return list(points)
    size = math.ceil(len(points) / (limit / 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        stretch = [point for point in points[start : start + size] if math.isfinite(point[1])]
        if stretch:
            ends = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
            kept += sorted(ends)
        else:
            kept.append(points[start])
    if kept[-1][0] != points[-1][0]:
        kept.append(points[-1])
    return kept


def smoothed(values: Sequence[float], reach: int) -> list[float]:
    """Least-squares line through each value and its `2 * reach` nearest neighbours, read at the value.

    In the middle this is the mean of both sides, which does not lag behind. At the ends, where neighbours are missing
    on one side, a mean would lag and a shrinking window would follow the noise of the last values; the line through as
    many values as elsewhere does neither (local linear regression: Cleveland 1979, with equal weights). It does not
    leave the range of the values: a learning rate that falls to 0 is not shown below it. Values that are not finite
    are left out and stay as they are.
    """
    told = [(index, value) for index, value in enumerate(values) if math.isfinite(value)]
    lowest, highest = min((value for _, value in told), default=0.0), max((value for _, value in told), default=0.0)
    in_window = {index: place for place, (index, _) in enumerate(told)}
    # Prefix sums of 1, x, x², y and xy over the finite values.
    sums = [[0.0, *accumulate(part)] for part in zip(*((1.0, x, x * x, y, x * y) for x, y in told), strict=True)]
    width = min(len(told), 2 * reach + 1)
    smooth = []
    for index, value in enumerate(values):
        place = in_window.get(index)
        if place is None:
            smooth.append(value)
            continue
        start = max(0, min(place - reach, len(told) - width))
        n, sx, sxx, sy, sxy = (part[start + width] - part[start] for part in sums)
        spread = n * sxx - sx * sx
        slope = (n * sxy - sx * sy) / spread if spread else 0.0
        smooth.append(min(highest, max(lowest, sy / n + slope * (index - sx / n))))
    return smooth
