"""The lines that rank 0 prints for every logged step.

The tutorials' own, so that existing scripts go on working:

    [0]:LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7011 learning_rate : 2.80e-06 throughput : 6449.36

and, from programs that know more, a report in JSON:

    [0]:{"trainflow_metrics": {"step": 14, "tokens_per_second": 825518.1, "mfu_percent": 31.2}}

The prefix in brackets is torchrun's and optional; the tutorial's script ends the line with a space, or, under
`--print_grad_norm`, with ` grad-norm : 1.25`. Throughput is in sequences per second over all ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, ValidationError

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_PREFIX = r"(?:\[[^\]]*\]:\s?)?"
_LINE = re.compile(
    rf"^{_PREFIX}"
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
    throughput: float
    """Sequences per second over all ranks."""


_REPORT = re.compile(rf'^{_PREFIX}(?P<report>\{{"trainflow_metrics":.*\}})\s*$')


class StepReport(BaseModel):
    """What a program says of a step beside its metrics line. Fields of later versions are passed over."""

    model_config = ConfigDict(frozen=True)

    step: int
    tokens_per_second: float | None = None
    """Over all ranks, padding included."""
    mfu_percent: float | None = None
    """Model FLOPs utilisation: the model's own operations, in percent of the devices' peak."""
    grad_norm: float | None = None
    """2-norm of the step's gradients before clipping."""
    data_wait_percent: float | None = None
    """Share of the time since the last logged step in which rank 0 waited for samples."""


class _ReportLine(BaseModel):
    trainflow_metrics: StepReport


def parse_report_line(line: str) -> StepReport | None:
    """The report in a log line, or None if it is another line."""
    found = _REPORT.match(line)
    if found is None:
        return None
    try:
        return _ReportLine.model_validate_json(found["report"]).trainflow_metrics
    except ValidationError:
        return None


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
