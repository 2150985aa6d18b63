"""What rank 0 tells of each step: the tutorials' line and a report on stdout, and TensorBoard events."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"

REMEMBERED = 1000
"""Laps that percentiles are taken of."""


@dataclass(frozen=True)
class StepMetrics:
    """One logged step."""

    epoch: int
    step: int
    loss: float
    """Mean over the global batch, in nats."""
    learning_rate: float
    """That the schedule has come to behind the step, as in the tutorial; the step before took its own with it."""
    throughput: float
    """Sequences per second over all ranks, since the last logged step."""
    tokens_per_second: float | None = None
    """The same in tokens, padding included."""
    mfu_percent: float | None = None
    """Model FLOPs utilisation; None where the device's peak is not known."""
    mfu_peak: str | None = None
    """The peak that it is a share of, and who says so."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Losses that the loss is the sum of, by name; none where it is a single one."""
    grad_norm: float | None = None
    """2-norm of the step's gradients before clipping."""
    data_wait_percent: float | None = None
    """Of the time since the last logged step, what rank 0 waited for samples."""
    step_ms_p50: float | None = None
    """Median of the last steps' times, in milliseconds; of rank 0, which waits for the others in every step."""
    step_ms_p95: float | None = None
    """95th percentile of the same."""
    memory_mib: float | None = None
    """Of rank 0: what its device's allocator holds, or the resident memory where it trains on the CPU."""


def line(metrics: StepMetrics, when: time.struct_time, *, with_norm: bool = False) -> str:
    """The tutorials' line, to the letter: existing scripts and `PublishMetrics` read it."""
    norm = f" grad-norm : {metrics.grad_norm}" if with_norm else ""
    return (
        f"LOG {time.asctime(when)} - ({metrics.epoch}, {metrics.step}) step_loss : {metrics.loss:.4f} "
        f"learning_rate : {metrics.learning_rate:.2e} throughput : {metrics.throughput:.2f}{norm}"
    )


def report(metrics: StepMetrics) -> str:
    """All that is known of the step, in a line of JSON of its own behind the tutorials' line."""
    return json.dumps({"trainflow_metrics": known(metrics)})


DIGITS = {"learning_rate": 10, "mfu_percent": 2, "data_wait_percent": 3, "memory_mib": 0, "tokens_per_second": 1}
"""Decimals in the report, where they are not four."""


def values(metrics: StepMetrics) -> dict[str, Any]:
    """All fields by their names, and the parts of the loss by theirs."""
    named = dict(vars(metrics))
    return {**named.pop("parts"), **named}


def known(metrics: StepMetrics) -> dict[str, Any]:
    """The fields that have a value, rounded, under the names that a reader of JSON expects; NaN is none."""
    named = {"sequences_per_second" if name == "throughput" else name: value for name, value in values(metrics).items()}
    return {
        name: round(value, DIGITS.get(name, 4)) if isinstance(value, float) else value
        for name, value in named.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


class MetricsLog:
    """Prints and records the steps of a process; silent where there is no folder to record them in."""

    def __init__(self, output_dir: Path | None, *, first_step: int, with_norm: bool = False) -> None:
        """
        Args:
            output_dir: The run's folder; None for a process that has nothing to say.
            first_step: The first step of this process: an earlier attempt's events from there on are dropped.
            with_norm: Whether lines end with the gradients' norm.
        """
        self._with_norm = with_norm
        self._speaks = output_dir is not None
        self._events = _event_writer(output_dir / FOLDER, first_step) if output_dir is not None else None

    def record(self, metrics: StepMetrics) -> None:
        """Log one step. The time of the line is UTC, as in any pod."""
        if self._speaks:
            print(line(metrics, time.gmtime(), with_norm=self._with_norm), report(metrics), sep="\n", flush=True)
        if self._events is not None:
            for name, value in values(metrics).items():
                if isinstance(value, float):
                    self._events.add_scalar(name, value, metrics.step)

    def close(self) -> None:
        """Write out what is buffered."""
        if self._events is not None:
            self._events.close()


def _event_writer(folder: Path, first_step: int) -> Any:
    """A TensorBoard writer; None where tensorboard is not installed, since no run depends on it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("tensorboard is not installed: metrics go to the log alone.", flush=True)
        return None
    return SummaryWriter(str(folder), purge_step=first_step)


class Stopwatch:
    """Measures the rate of sequences, per lap and over all laps."""

    def __init__(self) -> None:
        self._lap_began = time.perf_counter()
        self._began: float | None = None
        self._sequences = 0

    def lap(self, sequences: int) -> float:
        """Rate since the last lap. The first lap, in which graphs are loaded, does not count in `overall`."""
        now = time.perf_counter()
        rate = sequences / (now - self._lap_began)
        self._lap_began = now
        if self._began is None:
            self._began = now
        else:
            self._sequences += sequences
        return rate

    def overall(self) -> float:
        """Rate over all laps but the first; 0 when there was no other."""
        elapsed = self._lap_began - (self._began or self._lap_began)
        return self._sequences / elapsed if elapsed else 0.0


class StepTimes:
    """Durations of the last steps."""

    def __init__(self) -> None:
        self._lap_began = time.perf_counter()
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._is_first = True

    def lap(self, steps: int) -> float:
        """Record the time of the steps since the last lap. The first lap, in which graphs are loaded, is not
        remembered.

        Returns:
            The lap's time in seconds.
        """
        now = time.perf_counter()
        elapsed, self._lap_began = now - self._lap_began, now
        if not self._is_first:
            self._seconds.append(elapsed / steps)
        self._is_first = False
        return elapsed

    def percentile_ms(self, share: float) -> float | None:
        """A percentile of the laps' mean times per step, in milliseconds; None before there are any.

        Between two logged steps the device is not waited for, so single steps have no time of their own there.
        """
        if not self._seconds:
            return None
        in_order = sorted(self._seconds)
        return 1000 * in_order[min(len(in_order) - 1, int(share * len(in_order)))]
