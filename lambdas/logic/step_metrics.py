"""Which lines of rank 0's log are new steps? No step twice, none left out, also across polls."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from lambdas.gateways.backend import LogLine
from lambdas.models.metrics_line import StepMetrics, parse_metrics_line
from lambdas.models.run import MetricsCursor


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


def advanced(cursor: MetricsCursor, lines: list[LogLine], steps: list[StepMetrics], *, now: datetime) -> MetricsCursor:
    """The cursor after `steps`, found in `lines`, have been published."""
    since = lines[-1].logged_at if lines else cursor.since
    if not steps:
        return cursor.model_copy(update={"since": since})
    return MetricsCursor(
        since=since,
        first_step=steps[0].step if cursor.first_step is None else cursor.first_step,
        last_step=steps[-1].step,
        datapoints=cursor.datapoints + len(steps),
        first_loss=steps[0].loss if cursor.first_loss is None else cursor.first_loss,
        last_loss=steps[-1].loss,
        progressed_at=now,
    )
