"""New steps in the lines of rank 0's log. Each step is found exactly once, also across polls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from trainflow.models.log_line import LogLine
from trainflow.models.run import LogPosition, MetricsCursor
from trainflow.protocol.metrics_line import StepMetrics, parse_metrics_line
from trainflow.protocol.step_report import StepReport, parse_report_line

MAX_LINES_PER_BATCH = 240
"""Steps and reports of one batch: with four data points each, and a few of the cluster's, they fit one call of
PutMetricData, which takes 1,000."""


@dataclass
class Batch:
    """Steps and reports beyond the cursor, in ascending order."""

    steps: list[StepMetrics] = field(default_factory=list)
    reports: list[tuple[datetime, StepReport]] = field(default_factory=list)
    """Reports with the times at which they were logged."""

    @property
    def is_full(self) -> bool:
        """Whether the log may contain more behind this batch."""
        return len(self.steps) + len(self.reports) >= MAX_LINES_PER_BATCH


def next_batch(lines: Iterable[LogLine], cursor: MetricsCursor) -> Batch:
    """The new steps and reports in the next lines.

    The step number decides what is new: steps that a restarted job repeats have been published before and are not
    changed. A step's report may come a poll later than its metrics line, so each has a number of its own.

    Args:
        lines: Lines of the log; read up to the end or until the batch is full.
        cursor: Position of what has been published.
    """
    batch = Batch()
    last_step, last_report = cursor.last_step, cursor.last_report
    for line in lines:
        # Almost every line of a verbose program is neither: searching for a word is cheaper than matching a pattern.
        if "step_loss" in line.text:
            step = parse_metrics_line(line.text)
            if step is not None and (last_step is None or step.step > last_step):
                batch.steps.append(step)
                last_step = step.step
        elif "trainflow_metrics" in line.text:
            report = parse_report_line(line.text)
            if report is not None and (last_report is None or report.step > last_report):
                batch.reports.append((line.logged_at, report))
                last_report = report.step
        if batch.is_full:
            break
    return batch


def advanced(cursor: MetricsCursor, batch: Batch, *, log: LogPosition | None, now: datetime) -> MetricsCursor:
    """The cursor after a batch has been published.

    Args:
        cursor: The cursor before the batch.
        batch: The batch that has been published.
        log: Position behind the batch's last line.
        now: Time of the poll.
    """
    steps, last_report = batch.steps, batch.reports[-1][1].step if batch.reports else cursor.last_report
    if not steps:
        return cursor.model_copy(update={"log": log, "last_report": last_report})
    return MetricsCursor(
        log=log,
        first_step=steps[0].step if cursor.first_step is None else cursor.first_step,
        last_step=steps[-1].step,
        datapoints=cursor.datapoints + len(steps),
        first_loss=_finite(steps[0].loss) if cursor.first_loss is None else cursor.first_loss,
        last_loss=_finite(steps[-1].loss),
        last_report=last_report,
        progressed_at=now,
        log_rotations=cursor.log_rotations,
    )


def _finite(loss: float) -> float | None:
    """A finite loss, or None: the cursor is passed as JSON, which has no NaN."""
    return loss if math.isfinite(loss) else None
