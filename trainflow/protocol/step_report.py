"""The report of a step, in a line of JSON behind its metrics line, from programs that know more:

    [0]:{"trainflow_metrics": {"step": 14, "tokens_per_second": 825518.1, "mfu_percent": 31.2}}

The prefix in brackets is torchrun's and optional. Losses that a loss is the sum of stand in it under their own names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainflow.protocol.metrics_line import PREFIX

_NAME = "trainflow_metrics"
_LINE = re.compile(rf'^{PREFIX}(?P<report>\{{"{_NAME}":.*\}})\s*$')

_DECIMALS = {"learning_rate": 10, "mfu_percent": 2, "data_wait_percent": 3, "memory_mib": 0, "tokens_per_second": 1}
"""Decimals in the line, where they are not four."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What a program says of a step beside its metrics line; None where it does not know."""

    step: int
    epoch: int | None = None
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
    """Share of the time since the last logged step in which rank 0 waited for samples."""
    step_ms_p50: float | None = None
    """Median of the last steps' times, in milliseconds; of rank 0, which waits for the others in every step."""
    step_ms_p95: float | None = None
    """95th percentile of the same."""
    memory_mib: float | None = None
    """Memory that rank 0's device allocator holds, or rank 0's resident memory where it trains on the CPU."""


def report_line(report: StepReport, losses: Mapping[str, float] | None = None) -> str:
    """The line of a report.

    Args:
        report: The report. Numbers are rounded; what is not finite is left out.
        losses: Losses that the step's is the sum of, by name.
    """
    return json.dumps({_NAME: _known({**(losses or {}), **vars(report)})})


def parse_report_line(line: str) -> StepReport | None:
    """The report in a log line, or None if it is another line. Fields of later versions are passed over."""
    found = _LINE.match(line)
    if found is None:
        return None
    try:
        said = json.loads(found["report"])[_NAME]
        known: dict[str, Any] = {field.name: _READERS[field.name](said.get(field.name)) for field in fields(StepReport)}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return None if known["step"] is None else StepReport(**known)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that there are, rounded; JSON has no NaN."""
    return {
        name: round(value, _DECIMALS.get(name, 4)) if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def _whole(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{value!r} is no whole number")


def _number(value: object) -> float | None:
    if value is None:
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
    field.name: {"int": _whole, "int | None": _whole, "str | None": _text}.get(str(field.type), _number)
    for field in fields(StepReport)
}
