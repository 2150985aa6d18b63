"""Which lines of rank 0's log are new steps? No step twice, none left out, also across polls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from lambdas.gateways.backend import LogLine
from lambdas.models.metrics_line import StepMetrics, StepReport, parse_metrics_line, parse_report_line
from lambdas.models.run import MetricsCursor

Reports = Sequence[tuple[datetime, StepReport]]
"""With the time at which each was logged."""


def new_steps(lines: Iterable[LogLine], cursor: MetricsCursor) -> list[StepMetrics]:
    """Steps that the cursor has not seen, in ascending order.

    The log is read from the cursor's second on, so lines come again; the step number tells which are new. Steps that
    a restarted job replays have been published before and stay as they are.
    """
    newest = cursor.last_step
    found = []
    for line in lines:
        step = parse_metrics_line(line.text)
        if step is not None and (newest is None or step.step > newest):
            found.append(step)
            newest = step.step
    return found


def new_reports(lines: Iterable[LogLine], cursor: MetricsCursor) -> list[tuple[datetime, StepReport]]:
    """Reports that the cursor has not seen, by a step number of their own.

    A step's report may come a poll later than its metrics line, so one number cannot stand for both.
    """
    newest = cursor.last_report
    found = []
    for line in lines:
        report = parse_report_line(line.text)
        if report is not None and (newest is None or report.step > newest):
            found.append((line.logged_at, report))
            newest = report.step
    return found


def advanced(
    cursor: MetricsCursor,
    lines: Sequence[LogLine],
    steps: Sequence[StepMetrics],
    reports: Reports = (),
    *,
    now: datetime,
) -> MetricsCursor:
    """The cursor after `steps` and `reports`, found in `lines`, have been published."""
    since = lines[-1].logged_at if lines else cursor.since
    last_report = reports[-1][1].step if reports else cursor.last_report
    if not steps:
        return cursor.model_copy(update={"since": since, "last_report": last_report})
    return MetricsCursor(
        since=since,
        first_step=steps[0].step if cursor.first_step is None else cursor.first_step,
        last_step=steps[-1].step,
        datapoints=cursor.datapoints + len(steps),
        first_loss=_finite(steps[0].loss) if cursor.first_loss is None else cursor.first_loss,
        last_loss=_finite(steps[-1].loss),
        last_report=last_report,
        progressed_at=now,
    )


def _finite(loss: float) -> float | None:
    """The cursor travels as JSON, which has no NaN."""
    return loss if math.isfinite(loss) else None
