"""Compares the published metrics with rank 0's log, step by step."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations, combinations_with_replacement

from trainflow.models.run_record import MetricsPublished
from trainflow.protocol.metrics_line import StepMetrics

MAX_EXPLANATIONS = 20_000
"""Tries for one period before only its count is used; reached by minutes with hundreds of odd steps alone."""

SUM_TOLERANCE = 1e-6
"""Tolerance of a sum of losses, for each datum: rounding only, for the log's own digits are what is published."""


@dataclass(frozen=True)
class PeriodStatistics:
    """What CloudWatch holds for one period of one metric."""

    start: datetime
    period_seconds: int
    sample_count: int
    total: float
    """Sum of the data's values."""

    @property
    def end(self) -> datetime:
        """First instant after the period."""
        return self.start + timedelta(seconds=self.period_seconds)


def latest_of_each_step(lines: Iterable[StepMetrics]) -> list[StepMetrics]:
    """Steps in their order, each as its last line says: a restarted job repeats steps."""
    latest = {line.step: line for line in lines}
    return [latest[step] for step in sorted(latest)]


def compare(lines: Sequence[StepMetrics], statistics: Sequence[PeriodStatistics]) -> MetricsPublished:
    """Compare CloudWatch's statistics with the steps in rank 0's log.

    A step counts as published if any of its lines was. Of a repeated step that was published each time, every datum
    but one is a duplicate, and so is a datum for which the log has no line.

    Args:
        lines: Every metrics line that rank 0 wrote, repeated steps included.
        statistics: The step loss's statistics, in disjoint periods.
    """
    data_of_step: Counter[int] = Counter()
    strays = 0
    for period, logged in _by_period(lines, statistics):
        counts = _explain(period, logged)
        strays += period.sample_count - sum(counts)
        for line, count in zip(logged, counts, strict=True):
            data_of_step[line.step] += count
    published = sorted(step for step, count in data_of_step.items() if count)
    return MetricsPublished(
        datapoints=sum(period.sample_count for period in statistics),
        first_step=published[0] if published else None,
        last_step=published[-1] if published else None,
        gaps=len({line.step for line in lines} - set(published)),
        duplicates=strays + sum(data_of_step[step] - 1 for step in published),
    )


def _by_period(
    lines: Sequence[StepMetrics], statistics: Sequence[PeriodStatistics]
) -> Iterator[tuple[PeriodStatistics, list[StepMetrics]]]:
    """Each period with the lines that were logged in it; lines outside all periods were not published."""
    logged: dict[datetime, list[StepMetrics]] = defaultdict(list)
    for line in lines:
        logged[line.logged_at].append(line)
    moments = sorted(logged)
    for period in statistics:
        inside = moments[bisect_left(moments, period.start) : bisect_left(moments, period.end)]
        yield period, [line for moment in inside for line in logged[moment]]


def _explain(period: PeriodStatistics, logged: Sequence[StepMetrics]) -> list[int]:
    """How many data each line probably has: the likeliest explanation of the period's count and sum.

    Fewest errors first; where only the count can be explained, the last lines are taken for missing ones, as they are
    when a reader is behind.
    """
    publishable = [index for index, line in enumerate(logged) if math.isfinite(line.loss)]
    surplus = period.sample_count - len(publishable)
    tolerance = SUM_TOLERANCE * max(1, period.sample_count)
    for missing, doubled in _explanations(publishable, surplus):
        losses = [logged[index].loss for index in (*publishable, *doubled)]
        if abs(sum(losses) - sum(logged[index].loss for index in missing) - period.total) <= tolerance:
            return _counts(logged, publishable, missing, doubled)
    return _counts(logged, publishable, publishable[period.sample_count :], ())


def _explanations(publishable: Sequence[int], surplus: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of missing and doubled lines that make up the surplus, those with the fewest errors first."""
    tried = 0
    for swaps in range(3):
        num_missing, num_doubled = swaps + max(0, -surplus), swaps + max(0, surplus)
        for missing in combinations(publishable, num_missing):
            rest = [index for index in publishable if index not in missing]
            for doubled in combinations_with_replacement(rest, num_doubled):
                tried += 1
                if tried > MAX_EXPLANATIONS:
                    return
                yield missing, doubled


def _counts(
    logged: Sequence[StepMetrics], publishable: Sequence[int], missing: Sequence[int], doubled: Sequence[int]
) -> list[int]:
    counts = Counter(publishable)
    counts.subtract(missing)
    counts.update(doubled)
    return [counts[index] for index in range(len(logged))]
