"""The line that rank 0 prints for every logged step: the tutorials' own, so that existing scripts go on working.

    [0]:LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7011 learning_rate : 2.80e-06 throughput : 6449.36

The prefix in brackets is torchrun's and optional. Throughput is in sequences per second over all ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_LINE = re.compile(
    r"^(?:\[[^\]]*\]:\s?)?LOG (?P<logged_at>\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}) - "
    r"\((?P<epoch>\d+), (?P<step>\d+)\) "
    rf"step_loss : (?P<loss>{_NUMBER}) learning_rate : (?P<learning_rate>{_NUMBER}) "
    rf"throughput : (?P<throughput>{_NUMBER})\s*$"
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
    throughput: float
    """Sequences per second over all ranks."""


def parse_metrics_line(line: str) -> StepMetrics | None:
    """The step that a log line reports, or None if it is another line."""
    found = _LINE.match(line)
    if found is None:
        return None
    logged_at = datetime.strptime(found["logged_at"], "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    return StepMetrics(
        logged_at=logged_at,
        epoch=int(found["epoch"]),
        step=int(found["step"]),
        loss=float(found["loss"]),
        learning_rate=float(found["learning_rate"]),
        throughput=float(found["throughput"]),
    )
