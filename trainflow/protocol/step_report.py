"""Report of a step, in a line of JSON: an addition to the step's metrics line, or the only line of the step.

    [0]:{"trainflow_metrics": {"step": 14, "tokens_per_second": 825518.1, "mfu_percent": 31.2}}

It ends the line; what comes before it is passed over (torchrun's prefix, or a progress bar that shares the stream). It
contains the terms of a loss, and any other figure, under their own names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from trainflow.protocol.lost_files import LOST_FILES
from trainflow.protocol.metric_aliases import LARGEST_STEP, SEQUENCES, by_meaning, counted, number, whole
from trainflow.protocol.metrics_line import StepMetrics

METRICS = "trainflow_metrics"
"""Key of the JSON object in the line. `trainflow.protocol.report` repeats it, since it imports nothing of ours."""

ALIVE = "trainflow_alive"
"""Key of the JSON object of a line that says that files of the run have changed."""

RELAYED = {"relayed": True}
"""Field of reports that a program beside the training prints: they may come behind the training's error message."""

_BEGIN = f'{{"{METRICS}":'

NOT_FINITE = ("nan", "inf", "-inf")
"""Words for numbers that are not finite; JSON cannot represent them."""

LOGGED_AT = "logged_at"
"""Field with the time of a step, in seconds since 1970, of reports that are printed later than the step."""

OLDEST, NEWEST = timedelta(days=13), timedelta(hours=1)
"""Bounds of `logged_at` before and after the line's time: CloudWatch accepts two weeks and two hours (API reference,
PutMetricData)."""

_DECIMALS = {"learning_rate": 10, "mfu_percent": 2, "data_wait_percent": 3, "memory_mib": 0, "tokens_per_second": 1}
"""Decimals in the line, where they are not four."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """Figures of a step in addition to its metrics line; None for those that the program does not know."""

    step: int
    epoch: float | None = None
    loss: float | None = None
    """Mean over the global batch, in nats."""
    learning_rate: float | None = None
    """Learning rate of the step, as in the metrics line."""
    sequences_per_second: float | None = None
    """Throughput over all ranks since the last logged step."""
    tokens_per_second: float | None = None
    """The same in tokens, padding included."""
    mfu_percent: float | None = None
    """Model FLOPs utilisation: the model's own operations, in percent of the devices' peak."""
    mfu_peak: str | None = None
    """The peak that it is a share of, and its source."""
    grad_norm: float | None = None
    """2-norm of the step's gradients before clipping."""
    data_wait_percent: float | None = None
    """Percent of the time since the last logged step that rank 0 waited for samples."""
    step_ms_p50: float | None = None
    """Median of the last steps' times, in milliseconds; of rank 0, which waits for the others in every step."""
    step_ms_p95: float | None = None
    """95th percentile of the same."""
    memory_mib: float | None = None
    """Memory that rank 0's device allocator holds, or rank 0's resident memory where it trains on the CPU."""
    logged_at: float | None = None
    """Time when the step was logged, in seconds since 1970; None if the line's time is the step's time."""
    others: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Further figures, under the names that the program gives them."""
    throughput_of: str = SEQUENCES
    """Unit of `sequences_per_second`: `sequences`, or `samples` if the program reports those."""

    def as_step(self, printed_at: datetime) -> StepMetrics:
        """The step of a program that prints only reports.

        Args:
            printed_at: Time of the line.
        """
        own = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, float) and name not in _OF_STEPS and name != LOGGED_AT
        }
        return StepMetrics(
            logged_at=self.time(printed_at),
            epoch=self.epoch,
            step=self.step,
            loss=self.loss,
            learning_rate=self.learning_rate,
            throughput=self.sequences_per_second,
            metrics={**own, **self.others},
            throughput_of=self.throughput_of,
        )

    def time(self, printed_at: datetime) -> datetime:
        """Time when the step was logged; the line's time if the report's time is missing or implausible."""
        try:
            stated = datetime.fromtimestamp(self.logged_at or 0.0, UTC)
        except (ValueError, OverflowError, OSError):
            return printed_at
        return stated if -OLDEST <= stated - printed_at <= NEWEST else printed_at

    def without(self, names: frozenset[str]) -> StepReport:
        """The report without figures of these names."""
        own: dict[str, Any] = {name: None for name in names if name in _FIGURES}
        return replace(self, **own, others={name: value for name, value in self.others.items() if name not in names})


_OF_STEPS = frozenset({"step", "epoch", "loss", "learning_rate", "sequences_per_second"})
"""Fields that are those of `StepMetrics`."""


def is_relayed(line: str) -> bool:
    """Whether a program beside the training has printed this line."""
    is_known = f'{{"{ALIVE}":' in line or f'{{"{LOST_FILES}":' in line
    return is_known or (_BEGIN in line and '"relayed": true}' in line)


def report_line(report: StepReport, losses: Mapping[str, float] | None = None) -> str:
    """The line of a report.

    Args:
        report: The report. Numbers are rounded; what is not finite is left out.
        losses: Losses that the step's is the sum of, by name.
    """
    own = {name: value for name, value in vars(report).items() if name not in ("others", "throughput_of")}
    if report.throughput_of != SEQUENCES:
        own[f"{report.throughput_of}_per_second"] = own.pop("sequences_per_second")
    return json.dumps({METRICS: _known({**(losses or {}), **report.others, **own})})


def parse_report_line(line: str) -> StepReport | None:
    """The report in a log line, or None if it is another line. Further fields are ignored unless they are numbers."""
    begin = line.find(_BEGIN)
    if begin < 0:
        return None
    try:
        figures = json.loads(line[begin:])[METRICS]
        said = by_meaning(figures)
        step = whole(said.pop("step", None)) if isinstance(said.get("step"), int | float) else None
        known: dict[str, Any] = {name: read(said.pop(name, None)) for name, read in _READERS.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if step is None:
        return None
    numbers = {name: number(value) for name, value in said.items()}
    others = {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
    return StepReport(step=step, **known, others=others, throughput_of=counted(figures))


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The known values, rounded and without NaN, which JSON cannot represent."""
    return {
        name: round(value, _DECIMALS.get(name, 4)) if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def _loss(value: object) -> float | None:
    """A loss. One that is not finite is a word, since JSON cannot represent it as a number."""
    return number(value) if value in NOT_FINITE else _number(value)


def _epoch(value: object) -> float | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) <= LARGEST_STEP else None
    found = _number(value)
    return int(found) if found is not None and found.is_integer() else found


def _number(value: object) -> float | None:
    if value is None or value in NOT_FINITE:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")


_READERS = {
    each.name: {"epoch": _epoch, "loss": _loss, "mfu_peak": _text}.get(each.name, _number)
    for each in fields(StepReport)
    if each.name not in ("step", "others", "throughput_of")
}

_FIGURES = frozenset(_READERS) - _OF_STEPS
"""Fields that a further figure of a metrics line may repeat."""
