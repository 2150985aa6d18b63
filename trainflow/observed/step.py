"""A logged step of a training, and the parsers of the two lines that report it: metrics line and report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from trainflow.protocol.metric_aliases import SEQUENCES, by_meaning, counted, number, whole
from trainflow.protocol.metrics_line import metrics_figures
from trainflow.protocol.step_report import LOGGED_AT, report_figures

OWN_FIGURES = ("loss", "learning_rate", "throughput")
"""Figures that are fields of `Step`."""

OLDEST, NEWEST = timedelta(days=13), timedelta(hours=1)
"""Range of a report's `logged_at` before and after the time of its line: CloudWatch accepts two weeks and two hours
(API reference, PutMetricData)."""


@dataclass(frozen=True)
class Step:
    """One logged step. Fields that its program does not report are None."""

    logged_at: datetime
    """Time of the step's line in UTC: as the line states it, to the second (pods run in UTC), or as the log does."""
    epoch: float | None
    step: int
    loss: float | None
    """Mean loss of the step's global batch; in nats in the tutorial's line, may be NaN."""
    learning_rate: float | None
    """Learning rate after the step, as in the tutorial; the step itself used the one before."""
    throughput: float | None
    """Items per second over all ranks, since the last logged step; None if the program does not report it."""
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Further figures of the step, by the name that the program gives them."""
    throughput_of: str = SEQUENCES
    """Items that the throughput counts: `sequences`, `samples`, or as a pattern's line names them."""
    length: int | None = None
    """Last step of the whole training, where the program's line names it."""
    is_addition: bool = False
    """The step was read before without these further figures, which came later; its own figures are None here."""

    def figure(self, name: str) -> float | None:
        """The figure of this name; None if the program did not report it."""
        value: float | None = getattr(self, name) if name in OWN_FIGURES else self.metrics.get(name)
        return value

    def with_metrics(self, metrics: Mapping[str, float]) -> Step:
        """The step with more figures."""
        return replace(self, metrics={**self.metrics, **metrics}) if metrics else self

    def addition(self, known: Collection[str]) -> Step:
        """The further figures whose names are not known yet, as an addition to the step."""
        metrics = {name: value for name, value in self.metrics.items() if name not in known}
        return replace(self, loss=None, learning_rate=None, throughput=None, metrics=metrics, is_addition=True)

    def after(self, earlier: Step | None) -> Step:
        """The step as it is known once it was read again: an addition completes it, a repeated step replaces it."""
        return earlier.with_metrics(self.metrics) if self.is_addition and earlier is not None else self


def announced_length(steps: Sequence[Step]) -> int | None:
    """Last step of the training, as the newest step's line names it; None if it does not, or is past it."""
    newest = steps[-1] if steps else None
    return newest.length if newest and newest.length is not None and newest.step <= newest.length else None


def step_from_figures(values: Mapping[str, object], *, logged_at: datetime, length: int | None = None) -> Step | None:
    """The step that these figures describe, under whatever names; None if none of them is the step's number."""
    named = by_meaning(values)
    step = whole(named.pop("step", None))
    if step is None:
        return None
    numbers = {name: read for name, value in named.items() if (read := number(value)) is not None}
    epoch = numbers.pop("epoch", None)
    return Step(
        logged_at=logged_at,
        epoch=int(epoch) if epoch is not None and epoch.is_integer() else epoch,
        step=step,
        loss=numbers.pop("loss", None),
        learning_rate=numbers.pop("learning_rate", None),
        throughput=numbers.pop("sequences_per_second", None),
        metrics=numbers,
        throughput_of=counted(values),
        length=length,
    )


def parse_metrics_line(line: str) -> Step | None:
    """The step of a metrics line; None for any other line."""
    found = metrics_figures(line)
    if found is None:
        return None
    logged_at, figures = found
    step = step_from_figures(figures, logged_at=logged_at)
    return step if step is not None and step.loss is not None else None


def parse_report_line(line: str, printed_at: datetime) -> Step | None:
    """The step of a report; None for any other line.

    Args:
        line: The line.
        printed_at: Time of the line, for a report without a usable time of its own.
    """
    figures = report_figures(line)
    if figures is None:
        return None
    stated = figures.pop(LOGGED_AT, 0.0)
    return step_from_figures(figures, logged_at=_logged_at(stated, printed_at))


def _logged_at(stated: float, printed_at: datetime) -> datetime:
    try:
        found = datetime.fromtimestamp(stated, UTC)
    except (ValueError, OverflowError, OSError):
        return printed_at
    return found if -OLDEST <= found - printed_at <= NEWEST else printed_at
