"""The line that rank 0 prints for every logged step.

It is the tutorials' own, so that existing scripts go on working:

    [0]:LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7011 learning_rate : 2.80e-06 throughput : 6449.36

The prefix in brackets is torchrun's and optional; the tutorial's script ends the line with a space, or, under
`--print_grad_norm`, with ` grad-norm : 1.25`. Throughput is in sequences per second over all ranks. Programs that know
more print a report behind it: `step_report`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

PREFIX = r"(?:\[[^\]]*\]:\s?)?"
"""What torchrun may put before a line."""

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_LINE = re.compile(
    rf"^{PREFIX}"
    r"LOG (?P<logged_at>\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}) - "
    r"\((?P<epoch>\d+), (?P<step>\d+)\) "
    rf"step_loss : (?P<loss>{_NUMBER})\s+learning_rate : (?P<learning_rate>{_NUMBER})\s+"
    rf"throughput : (?P<throughput>{_NUMBER})(?:\s+grad-norm : {_NUMBER})?\s*$"
)


@dataclass(frozen=True)
class StepMetrics:
    """One logged step."""

    logged_at: datetime
    """When rank 0 printed the line, to the second, in UTC (pods run in UTC)."""
    epoch: int
    step: int
    loss: float
    """Mean loss of the step's global batch, in nats; may be NaN."""
    learning_rate: float
    """Rate that the schedule has come to behind the step, as in the tutorial; the step before took its own with it."""
    throughput: float
    """Sequences per second over all ranks, since the last logged step."""


def metrics_line(metrics: StepMetrics, *, grad_norm: float | None = None) -> str:
    """The line of a step, to the letter of the tutorials'.

    Args:
        metrics: The step.
        grad_norm: 2-norm of its gradients; None for a line without it.
    """
    norm = "" if grad_norm is None else f" grad-norm : {grad_norm}"
    return (
        f"LOG {metrics.logged_at.ctime()} - ({metrics.epoch}, {metrics.step}) step_loss : {metrics.loss:.4f} "
        f"learning_rate : {metrics.learning_rate:.2e} throughput : {metrics.throughput:.2f}{norm}"
    )


def parse_metrics_line(line: str) -> StepMetrics | None:
    """The step that a log line reports, or None if it is another line."""
    found = _LINE.match(line)
    if found is None:
        return None
    try:
        return StepMetrics(
            logged_at=datetime.strptime(found["logged_at"], "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC),
            epoch=int(found["epoch"]),
            step=int(found["step"]),
            loss=float(found["loss"]),
            learning_rate=float(found["learning_rate"]),
            throughput=float(found["throughput"]),
        )
    except ValueError:  # the 31st of February, or a number of thousands of digits
        return None
