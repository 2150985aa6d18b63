"""What rank 0 tells of each step: the tutorials' line on stdout, and TensorBoard events."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"


@dataclass(frozen=True)
class StepMetrics:
    """One logged step."""

    epoch: int
    step: int
    loss: float
    """Mean over the global batch, in nats."""
    learning_rate: float
    throughput: float
    """Sequences per second over all ranks, since the last logged step."""


def line(metrics: StepMetrics, when: time.struct_time) -> str:
    """The tutorials' line, to the letter: existing scripts and `PublishMetrics` read it."""
    return (
        f"LOG {time.asctime(when)} - ({metrics.epoch}, {metrics.step}) step_loss : {metrics.loss:.4f} "
        f"learning_rate : {metrics.learning_rate:.2e} throughput : {metrics.throughput:.2f}"
    )


class MetricsLog:
    """Prints and records the steps of a process; silent where there is no folder to record them in."""

    def __init__(self, output_dir: Path | None, *, first_step: int) -> None:
        """
        Args:
            output_dir: The run's folder; None for a process that has nothing to say.
            first_step: The first step of this process: an earlier attempt's events from there on are dropped.
        """
        self._speaks = output_dir is not None
        self._events = _event_writer(output_dir / FOLDER, first_step) if output_dir is not None else None

    def record(self, metrics: StepMetrics) -> None:
        """Log one step. The time of the line is UTC, as in any pod."""
        if self._speaks:
            print(line(metrics, time.gmtime()), flush=True)
        if self._events is not None:
            for name in ("loss", "learning_rate", "throughput"):
                self._events.add_scalar(name, getattr(metrics, name), metrics.step)

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
    """Sequences per second, a lap and in all."""

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
