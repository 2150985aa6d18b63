"""Report of a step, in a line of JSON: an addition to the step's metrics line, or the only line of the step.

    [0]:{"trainflow_metrics": {"step": 14, "tokens_per_second": 825518.1, "mfu_percent": 31.2}}

It ends the line; what comes before it is passed over (torchrun's prefix, or a progress bar that shares the stream). It
contains the terms of a loss, and any other figure, under their own names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypedDict

from trainflow.protocol.lost_files import LOST_FILES
from trainflow.protocol.metric_aliases import LARGEST_STEP, by_meaning, counted, number, whole
from trainflow.protocol.stacks import is_stacks_line

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

_DECIMALS = {"learning_rate": 10, "mfu_percent": 2, "data_wait_percent": 3, "memory_mib": 0, "tokens_per_second": 1}
"""Decimals in the line, where they are not four."""


class StepFigures(TypedDict, total=False):
    """Figures of a step whose names have a meaning; None if they are not known. A report may hold others as well."""

    step: int
    epoch: float | None
    loss: float | None
    """Mean over the global batch, in nats."""
    learning_rate: float | None
    """Learning rate after the step, as in the metrics line."""
    sequences_per_second: float | None
    """Throughput over all ranks since the last logged step."""
    tokens_per_second: float | None
    """The same in tokens, padding included."""
    mfu_percent: float | None
    """Model FLOPs utilisation: the model's own operations, in percent of the devices' peak."""
    mfu_peak: str | None
    """The peak that it is a share of, and its source."""
    grad_norm: float | None
    """2-norm of the step's gradients before clipping."""
    data_wait_percent: float | None
    """Share of the time since the last logged step that rank 0 spent waiting for samples."""
    step_ms_p50: float | None
    """Median of the last steps' times, in milliseconds; of rank 0, which waits for the others in every step."""
    step_ms_p95: float | None
    """95th percentile of the same."""
    memory_mib: float | None
    """Memory that rank 0's device allocator holds, or rank 0's resident memory where it trains on the CPU."""
    logged_at: float | None
    """Time of the step, in seconds since 1970; None if the time of the printed line counts."""


def is_relayed(line: str) -> bool:
    """Whether a program beside the training has printed this line."""
    is_known = f'{{"{ALIVE}":' in line or f'{{"{LOST_FILES}":' in line or is_stacks_line(line)
    return is_known or (_BEGIN in line and '"relayed": true}' in line)


def report_line(figures: Mapping[str, object]) -> str:
    """The line of a report.

    Args:
        figures: `StepFigures` and further ones, among them losses that the step's is the sum of. Numbers are rounded;
            what is not known or not finite is left out.
    """
    return json.dumps({METRICS: _known(figures)})


def report_figures(line: str) -> dict[str, float] | None:
    """The figures of a report by their meaning; None for any other line. Only the loss may be NaN or infinite.

    Further figures that are not numbers are left out.
    """
    begin = line.find(_BEGIN)
    if begin < 0:
        return None
    try:
        written = json.loads(line[begin:])[METRICS]
        figures = {name: _figure(name, value) for name, value in by_meaning(written).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if whole(figures.get("step")) is None:
        return None
    figures[f"{counted(written)}_per_second"] = figures.pop("sequences_per_second", None)
    return {name: value for name, value in figures.items() if value is not None}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The known values, rounded and without NaN, which JSON cannot represent."""
    return {
        name: round(value, _DECIMALS.get(name, 4)) if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def _figure(name: str, value: object) -> float | None:
    """The number of a figure; None if it is not known. A loss that is not finite is a word (`NOT_FINITE`).

    Raises:
        TypeError: If a figure whose name has a meaning is of another type.
    """
    if name in StepFigures.__annotations__:
        is_text = isinstance(value, str) and (name == "mfu_peak" or value in NOT_FINITE)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and name != "mfu_peak"
        if not (value is None or is_text or is_number):
            raise TypeError(f"{name} is {value!r}")
    found = None if name == "mfu_peak" else number(value)
    if found is None or (name == "epoch" and abs(found) > LARGEST_STEP):
        return None
    return found if math.isfinite(found) or (name == "loss" and isinstance(value, str)) else None
