"""The curves of one run, kept up to date as its steps come in, and the part of them that a screen shows."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

from trainflow.observed.step import Step
from trainflow.page.axes import STEP, TIME, counts, places
from trainflow.page.series import Series
from trainflow.protocol.metric_aliases import SEQUENCES
from trainflow.record.steps import throughput_of
from trainflow.record.wording import count, significant
from trainflow.report.charts import TITLES
from trainflow.report.scales import smoothed

MAX_METRICS = 24
"""Most curves of a run; a program that reports more has its first ones shown."""

MAX_BUCKETS = 2000
"""Most points of a curve that are sent: more than a screen has columns."""

MAX_SMOOTHING = 50
"""Strongest smoothing, in per cent of what is shown, that a mean reaches to both sides together."""

DIGITS = 7
"""Significant digits of what is sent: more than a plot shows."""

ROUNDED = 50_000
"""Rounded numbers that are remembered: most of a curve is sent again with each update. 24 curves of 500 points."""

OWN = {
    "loss": ("Loss", ""),
    "throughput": ("Throughput", f"{SEQUENCES}/s"),
    "learning_rate": ("Learning rate", ""),
}
"""Title and unit of the figures that every step may have: fields of `Step`."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Range and resolution of the requested curves."""

    first: float = -math.inf
    last: float = math.inf
    """First and last step of the range."""
    points: int = 600
    """Points of each curve."""
    smoothing: float = 0.0
    """Per cent of what is shown that each point is the mean of."""
    axis: str = STEP
    """`step`, `time`, or a figure that counts data."""


class RunCurves:
    """Curves of one run."""

    def __init__(self) -> None:
        self._steps: tuple[Step, ...] = ()
        self._counted = SEQUENCES
        self._series: dict[str, Series] = {}
        self._seconds = Series()
        self._lock = threading.Lock()
        self.version = 0
        """Grows with each change."""

    def titles(self) -> dict[str, str]:
        """Title with its unit of each metric that has a value."""
        return {
            name: " ".join(part for part in metric_title(name, self._counted) if part) for name in list(self._series)
        }

    def counts(self) -> dict[str, str]:
        """Title of each figure that counts data, and may be an axis."""
        return {name: metric_title(name)[0] for name in counts(dict(self._series))}

    def update(self, steps: Sequence[Step]) -> None:
        """Take over the steps that are known now; only those behind the first difference are read.

        Args:
            steps: All steps in their order, each once.
        """
        with self._lock:
            self._update(tuple(steps))

    def _update(self, steps: tuple[Step, ...]) -> None:
        if steps is self._steps:
            return
        same = _same_length(self._steps, steps)
        if same == len(steps) == len(self._steps):
            return
        if same < len(self._steps):
            for series in self._series.values():
                series.cut(self._steps[same].step)
            self._seconds.cut(self._steps[same].step)
        new = steps[same:]
        numbers = [step.step for step in new]
        if steps:
            began = steps[0].logged_at
            self._seconds.extend(numbers, [(step.logged_at - began).total_seconds() for step in new])
        for key in OWN:
            self._extend(key, numbers, list(map(attrgetter(key), new)))
        for name in dict.fromkeys(name for step in new if step.metrics for name in step.metrics):
            self._extend(name, numbers, [step.metrics.get(name) for step in new])
        self._steps = steps
        self._counted = throughput_of(steps)
        self.version += 1

    def payload(self, window: Window) -> dict[str, Any]:
        """The curves in a window, as JSON has them."""
        with self._lock:
            axis = self._axis(window.axis)
            return {
                "version": self.version,
                "axes": [{"key": name, "title": title} for name, title in self.counts().items()],
                "metrics": [
                    metric_payload(name, each, window, self._counted, axis)
                    for name, each in self._series.items()
                    if len(each)
                ],
            }

    def metric(self, name: str, window: Window) -> dict[str, Any] | None:
        """One curve in a window; None if the run does not have this metric."""
        with self._lock:
            series = self._series.get(name)
            return metric_payload(name, series, window, self._counted, self._axis(window.axis)) if series else None

    def not_finite(self) -> list[tuple[str, int]]:
        """Titles of the metrics with values that are not finite, and how many."""
        odd = ((name, len(series.not_finite)) for name, series in list(self._series.items()))
        return [(metric_title(name)[0], amount) for name, amount in odd if amount]

    def _axis(self, name: str) -> Series | None:
        """The figure of an axis over the steps; None for the steps themselves, and for one that the run lacks."""
        axis = self._seconds if name == TIME else self._series.get(name)
        return axis if axis is not None and len(axis) else None

    def _extend(self, name: str, numbers: Sequence[int], values: Sequence[float | None]) -> None:
        if None in values:
            said = [(number, value) for number, value in zip(numbers, values, strict=True) if value is not None]
            numbers, values = [number for number, _ in said], [value for _, value in said]
        if values and (name in self._series or len(self._series) < MAX_METRICS):
            self._series.setdefault(name, Series()).extend(numbers, cast("Sequence[float]", values))


def metric_payload(
    name: str, series: Series, window: Window, counted: str, axis: Series | None = None
) -> dict[str, Any]:
    """One curve: `low` and `high` are of each bucket, `mean` is smoothed, `newest` is as it was logged.

    `raw` is the mean without smoothing, and `at` the places of the steps `x` on another axis; both only where they
    differ.
    """
    points = max(2, min(MAX_BUCKETS, window.points))
    buckets = series.buckets(points, first=window.first, last=window.last)
    means = [bucket.mean for bucket in buckets]
    reach = round(len(buckets) * max(0.0, min(MAX_SMOOTHING, window.smoothing)) / 200)
    title, unit = metric_title(name, counted)
    odd = [x for x in series.not_finite if window.first <= x <= window.last]
    return {
        "key": name,
        "title": title,
        "unit": unit,
        "description": _in_words(title, unit, series, len(odd)),
        "x": _rounded(bucket.x for bucket in buckets),
        "low": _rounded(bucket.low for bucket in buckets),
        "high": _rounded(bucket.high for bucket in buckets),
        "mean": _rounded(smoothed(means, reach) if reach else means),
        "newest": _rounded(series.newest(window.last) or ()),
        **({"raw": _rounded(means)} if reach else {}),
        **({"at": _rounded(places(axis, [bucket.x for bucket in buckets]))} if axis else {}),
        "notFinite": odd[:: max(1, len(odd) // 100)],
    }


def titles_of_all(runs: Iterable[RunCurves]) -> dict[str, str]:
    """Title of each metric of several runs, with the unit of each run where those differ."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for name, title in run.titles().items():
            said = found.setdefault(name, [])
            if title not in said:
                said.append(title)
    return {name: " or ".join(titles) for name, titles in found.items()}


def metric_title(name: str, counted: str = SEQUENCES) -> tuple[str, str]:
    """Title and unit of a metric; `counted` is what the throughput counts."""
    if name == "throughput":
        return OWN[name][0], f"{counted}/s"
    if name in OWN:
        return OWN[name]
    return TITLES.get(name, (name, ""))


def _in_words(title: str, unit: str, series: Series, num_not_finite: int) -> str:
    """The curve for those who do not see it."""
    if series.last is None or series.last_x is None:
        return f"{title}: no finite value."
    [whole] = series.buckets(1)[:1]
    unit = f" {unit}" if unit else ""
    odd = f" {count(num_not_finite, 'value')} not finite." if num_not_finite else ""
    return (
        f"{title}: {significant(series.last)}{unit} at step {series.last_x:,.0f}, the newest of {len(series):,}; "
        f"lowest {significant(whole.low)}, highest {significant(whole.high)}.{odd}"
    )


def _rounded(values: Iterable[float]) -> list[float]:
    return list(map(_round, values))


@lru_cache(maxsize=ROUNDED)
def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _same_length(old: tuple[Step, ...], new: tuple[Step, ...]) -> int:
    """Number of steps at the beginning that are the same in both.

    A training that goes on adds steps behind its newest one. One that was started again replaces steps up to the newest
    one before it adds others; until then nothing is added, and all steps are compared.
    """
    low, high = 0, min(len(old), len(new))
    if len(new) > len(old) > 0 and new[high - 1] is old[-1]:
        return high
    if old[:high] == new[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
