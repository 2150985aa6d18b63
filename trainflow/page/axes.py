"""Axes of a run's curves besides its steps: time, and counts that the program logs, such as tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from trainflow.page.series import Series

STEP, TIME = "step", "time"

PROBES = 200
"""Stretches of a figure that are compared to see that it only grows."""

_DATA = re.compile(r"(?<![a-z])n?(?:tokens?|samples?|sequences?|examples?|images?)(?![a-z])")
_RATE = re.compile(r"(?<![a-z])per(?![a-z])|/\s?s(?:ec)?(?![a-z])|rate|speed|throughput|time(?!/)")


def counts(series: Mapping[str, Series]) -> list[str]:
    """Names of the figures that count data from the beginning on: they are named so, and only grow."""
    return [name for name, each in series.items() if _is_count(name) and _only_grows(each)]


def places(axis: Series, steps: Iterable[float]) -> list[float]:
    """The place on an axis of each step, which are in their order; never less than that of the step before."""
    found, furthest = [], -math.inf
    for step in steps:
        at = axis.newest(step)
        furthest = max(furthest, at[1] if at else axis.buckets(1)[0].low)
        found.append(furthest)
    return found


def _is_count(name: str) -> bool:
    lower = name.lower().replace("_", " ")
    return bool(_DATA.search(lower)) and not _RATE.search(lower)


def _only_grows(series: Series) -> bool:
    buckets = series.buckets(PROBES)
    if len(buckets) < 2 or buckets[0].low < 0:
        return False
    return buckets[-1].high > buckets[0].low and all(later.low >= earlier.high for earlier, later in pairwise(buckets))
