"""Rank 0's output for each step: the tutorials' line and a report on stdout, and TensorBoard events."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainflow.protocol.metrics_line import metrics_line
from trainflow.protocol.step_report import StepFigures, report_line

FOLDER = "tensorboard"

TAGS = {"sequences_per_second": "throughput"}
"""Names of scalars in TensorBoard, where they are not those of the report: charts of earlier versions go on."""

REMEMBERED = 1000
"""Laps that percentiles are taken of."""


class MetricsLog:
    """Prints and records the steps of a process; without a folder it does nothing."""

    def __init__(self, output_dir: Path | None, *, first_step: int, with_norm: bool = False) -> None:
        """
        Args:
            output_dir: The run's folder; None for a process that does not report.
            first_step: The first step of this process: an earlier attempt's events from there on are dropped.
            with_norm: Whether lines end with the gradients' norm.
        """
        self._with_norm = with_norm
        self._speaks = output_dir is not None
        self._events = _event_writer(output_dir / FOLDER, first_step) if output_dir is not None else None

    def record(self, figures: StepFigures, losses: Mapping[str, float]) -> None:
        """Log one step.

        Args:
            figures: The step; every figure of the metrics line has to be known.
            losses: Losses that the step's is the sum of, by name; none where it is a single one.
        """
        if self._speaks:
            line = metrics_line(figures, logged_at=datetime.now(UTC), with_norm=self._with_norm)
            # In one write: a print makes several with PYTHONUNBUFFERED, and the processes of a node share the stream.
            sys.stdout.write(f"{line}\n{report_line({**losses, **figures})}\n")
            sys.stdout.flush()
        if self._events is not None:
            for name, value in {**losses, **figures}.items():
                if isinstance(value, float):
                    self._events.add_scalar(TAGS.get(name, name), value, figures["step"])

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
        """Rate since the last lap. `overall` leaves out the first lap, which loads graphs."""
        now = time.perf_counter()
        rate = sequences / (now - self._lap_began)
        self._lap_began = now
        if self._began is None:
            self._began = now
        else:
            self._sequences += sequences
        return rate

    def overall(self) -> float:
        """Rate over all laps but the first; 0 after fewer than two laps."""
        elapsed = self._lap_began - (self._began or self._lap_began)
        return self._sequences / elapsed if elapsed else 0.0


class StepTimes:
    """Durations of the last steps."""

    def __init__(self) -> None:
        self._lap_began = time.perf_counter()
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._is_first = True

    def lap(self, steps: int) -> float:
        """Record the time of the steps since the last lap. The first lap loads graphs and is not recorded.

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
        """A percentile of the laps' mean times per step, in milliseconds; None before the first.

        The program does not wait for the device between two logged steps, so the times of single steps are unknown.
        """
        if not self._seconds:
            return None
        in_order = sorted(self._seconds)
        return 1000 * in_order[min(len(in_order) - 1, int(share * len(in_order)))]
