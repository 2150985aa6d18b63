"""Compares the published metrics with rank 0's log, step by step."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, combinations, combinations_with_replacement, islice

from trainflow.observed.step import Step
from trainflow.workflow.run_record import MetricsPublished

MAX_EXPLANATIONS = 20_000
"""Number of attempts for one period before only its count is used; only minutes with hundreds of odd steps reach it."""

SUM_TOLERANCE = 1e-6
"""Tolerance of a sum of losses, for each datum: rounding only, for the log's own digits are what is published."""


@dataclass(frozen=True)
class PeriodStatistics:
    """CloudWatch's statistics for one period of one metric."""

    start: datetime
    period_seconds: int
    sample_count: int
    total: float
    """Sum of the data's values."""

    @property
    def end(self) -> datetime:
        """First instant after the period."""
        return self.start + timedelta(seconds=self.period_seconds)


def latest_of_each_step(lines: Iterable[Step]) -> list[Step]:
    """Steps in their order, each as its last line says: a restarted job repeats steps."""
    latest: dict[int, Step] = {}
    for line in lines:
        latest[line.step] = line.after(latest.get(line.step))
    return [latest[step] for step in sorted(latest)]


def compare(lines: Sequence[Step], statistics: Sequence[PeriodStatistics]) -> MetricsPublished:
    """Compare CloudWatch's statistics with the steps in rank 0's log.

    The workflow publishes each step once, when it first reads a line of it. So of a step that a restarted job repeats,
    one datum is expected: for the first line, or for a later one if the job ended before the first was read. Every
    further datum is a duplicate, and so is a datum without a line in the log. CloudWatch refuses a loss that is not
    finite, so such a step is counted apart, and not as a gap.

    Args:
        lines: Every metrics line that rank 0 wrote, repeated steps included.
        statistics: The step loss's statistics, in disjoint periods in the order of time.
    """
    lines = [line for line in lines if line.loss is not None]  # the statistics are the loss's
    data_of_step: Counter[int] = Counter()
    strays = 0
    for period, logged in _by_period(lines, statistics):
        counts = _explain(period, logged, published=data_of_step)
        strays += period.sample_count - sum(counts)
        for line, count in zip(logged, counts, strict=True):
            data_of_step[line.step] += count
    published = sorted(step for step, count in data_of_step.items() if count)
    unpublished = [line for line in latest_of_each_step(lines) if not data_of_step[line.step]]
    return MetricsPublished(
        datapoints=sum(period.sample_count for period in statistics),
        first_step=published[0] if published else None,
        last_step=published[-1] if published else None,
        gaps=sum(_is_finite(line) for line in unpublished),
        duplicates=strays + sum(data_of_step[step] - 1 for step in published),
        non_finite=sum(not _is_finite(line) for line in unpublished),
    )


def _is_finite(line: Step) -> bool:
    return line.loss is not None and math.isfinite(line.loss)


def _by_period(
    lines: Sequence[Step], statistics: Sequence[PeriodStatistics]
) -> Iterator[tuple[PeriodStatistics, list[Step]]]:
    """Each period with the lines that were logged in it; lines outside all periods were not published."""
    logged: dict[datetime, list[Step]] = defaultdict(list)
    for line in lines:
        logged[line.logged_at].append(line)
    moments = sorted(logged)
    for period in statistics:
        inside = moments[bisect_left(moments, period.start) : bisect_left(moments, period.end)]
        yield period, [line for moment in inside for line in logged[moment]]


def _explain(period: PeriodStatistics, logged: Sequence[Step], *, published: Mapping[int, int]) -> list[int]:
    """Probable number of data for each line: the likeliest explanation of the period's count and sum.

    The likeliest is that each step that was not published before has one datum. After that: fewest errors first. Where
    only the count can be explained, the last lines are taken for missing ones, as they are when a reader is behind.

    Args:
        period: What CloudWatch holds.
        logged: The period's lines.
        published: Number of data of each step in earlier periods.
    """
    losses = {index: line.loss for index, line in enumerate(logged) if line.loss is not None and _is_finite(line)}
    tolerance = SUM_TOLERANCE * max(1, period.sample_count)
    expected = _first_of_each_step(logged, losses, published)
    base = sum(losses[index] for index in expected)
    explanations = chain(
        _one_each(logged, losses, expected), _with_errors(losses, expected, period.sample_count - len(expected))
    )
    for missing, added in islice(explanations, MAX_EXPLANATIONS):
        total = base - sum(losses[index] for index in missing) + sum(losses[index] for index in added)
        count = len(expected) - len(missing) + len(added)
        if count == period.sample_count and abs(total - period.total) <= tolerance:
            return _counts(logged, expected, missing, added)
    return _counts(logged, expected[: period.sample_count], (), ())


def _first_of_each_step(logged: Sequence[Step], losses: Mapping[int, float], published: Mapping[int, int]) -> list[int]:
    """Places of the lines that the workflow publishes if it reads every line at once."""
    first: dict[int, int] = {}
    for index in losses:
        if not published.get(logged[index].step):
            first.setdefault(logged[index].step, index)
    return list(first.values())


def _one_each(
    logged: Sequence[Step], losses: Mapping[int, float], expected: Sequence[int]
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """One datum for each step: its first line's up to a step, and the last line's behind it.

    This is what a job leaves that ends before its last lines are read, and whose successor repeats them. As pairs of
    the lines without a datum, of those expected, and of the other lines that have one.
    """
    latest = {logged[index].step: index for index in losses}
    repeated = [index for index in expected if latest[logged[index].step] != index]
    for place in range(len(repeated), -1, -1):
        yield repeated[place:], [latest[logged[index].step] for index in repeated[place:]]


def _with_errors(
    losses: Mapping[int, float], expected: Sequence[int], surplus: int
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Pairs of missing and surplus lines that make up the surplus, those with the fewest errors first."""
    for swaps in range(3):
        num_missing, num_added = swaps + max(0, -surplus), swaps + max(0, surplus)
        for missing in combinations(expected, num_missing):
            rest = [index for index in losses if index not in missing]
            for added in combinations_with_replacement(rest, num_added):
                yield missing, added


def _counts(logged: Sequence[Step], expected: Sequence[int], missing: Sequence[int], added: Sequence[int]) -> list[int]:
    counts = Counter(expected)
    counts.subtract(missing)
    counts.update(added)
    return [counts[index] for index in range(len(logged))]
