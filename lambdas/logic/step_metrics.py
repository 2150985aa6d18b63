"""New steps in the lines of rank 0's log. Each step is found exactly once, also across polls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal

from trainflow.failures.hangs import CLUES, hang_line
from trainflow.models.log_line import LogLine
from trainflow.models.metric_names import REPORT_FIELDS, STEP_FIELDS
from trainflow.models.progress import Format
from trainflow.models.run import Hang, LogPosition, MetricsCursor
from trainflow.progress.reader import LINES_BEFORE_WARNING, TRAINFLOW, Numbering, ProgressReader
from trainflow.protocol.checkpoint_line import (
    CHECKPOINT,
    HUGGING_FACE,
    RESUMED,
    CheckpointReport,
    parse_checkpoint_line,
    parse_resumed_line,
)
from trainflow.protocol.lost_files import LOST_FILES, LostFiles, parse_lost_files_line
from trainflow.protocol.metrics_line import Step
from trainflow.protocol.step_report import StepReport
from trainflow.record.steps import non_finite_steps

MAX_LINES_PER_BATCH = 240
"""Steps and reports of one batch: with four data points each, and a few of the cluster's, they fit one call of
PutMetricData, which takes 1,000."""

MAX_FIGURES_PER_BATCH = 940
"""Data points after which a batch is full: with those of one more line, which are fewer than
`metric_aliases.MAX_METRICS` and four, they fit the same call."""

MAX_METRIC_NAMES = 10
"""Most figures of a program's own that are published: CloudWatch bills each name of each run as a metric, by the
month."""

AFTERMATH = timedelta(seconds=30)
"""Time behind a line about a hang in which other lines belong to it: stacks, dumps, the same from other ranks."""

TABLE_FIELDS = frozenset(row.field for row in REPORT_FIELDS)
"""Figures that have a metric of Trainflow's."""


@dataclass
class Batch:
    """Steps and reports beyond the cursor, in ascending order."""

    steps: list[Step] = field(default_factory=list)
    reports: list[tuple[datetime, StepReport]] = field(default_factory=list)
    """Reports with the times at which they were logged, of steps that have a line of their own."""
    checkpoints: list[CheckpointReport] = field(default_factory=list)
    """Checkpoints that the program has reported."""
    resumed_from: int | None = None
    """Number of the checkpoint with which a job began."""
    lost_files: LostFiles | None = None
    """Files that the program has left in its working folder."""
    num_lines: int = 0
    """Lines that were read."""
    num_unparsable: int = 0
    """Those of them that looked like lines of steps, and could not be read as such."""
    format_name: str | None = None
    """Format of the progress, if one is known by now."""
    num_figures: int = 0
    """Data points of the steps and reports, at most."""
    has_replays: bool = False
    """Whether there were lines of steps that have been published before: a restarted job repeats them."""
    hang: Hang | None = None
    """A hang that the lines, or earlier ones, tell of, if nothing has followed."""
    hang_is_new: bool = False
    """Whether these lines were the first to tell of it."""

    @property
    def is_full(self) -> bool:
        """Whether the log may contain more behind this batch."""
        return len(self.steps) + len(self.reports) >= MAX_LINES_PER_BATCH or self.num_figures >= MAX_FIGURES_PER_BATCH

    def behind(self, published: MetricsCursor) -> Batch:
        """The steps and reports behind what has been published."""
        steps = [step for step in self.steps if step.step > _at_least(published.last_step)]
        return replace(
            self,
            steps=steps,
            reports=[(at, report) for at, report in self.reports if report.step > _at_least(published.last_report)],
            has_replays=self.has_replays or len(steps) < len(self.steps),
        )

    def watch_hang(self, line: LogLine) -> None:
        """Remember what a line says of a hang, and forget it when another line shows that the program goes on."""
        said = hang_line(line.text)
        if said is not None and self.hang is not None:
            self.hang = self.hang.model_copy(update={"logged_at": line.logged_at})
        elif said is not None:
            self.hang = Hang(error=said.error, line=said.text, logged_at=line.logged_at, seen_at=line.logged_at)
            self.hang_is_new = True
        elif self.hang is not None and line.logged_at - self.hang.logged_at > AFTERMATH:
            self.hang = None

    def add_step(self, step: Step) -> None:
        """Append a step."""
        self.steps.append(step)
        self.num_figures += len(STEP_FIELDS) + len(step.metrics)

    def add_report(self, logged_at: datetime, report: StepReport) -> None:
        """Append a report."""
        self.reports.append((logged_at, report))
        self.num_figures += len(REPORT_FIELDS) + len(report.others)


def next_batch(
    lines: Iterable[LogLine],
    cursor: MetricsCursor,
    *,
    progress: Literal["auto", "none"] | Format = "auto",
    lines_apart: int = 1,
) -> Batch:
    """The new steps and reports in the next lines.

    The step number decides what is new: steps that a restarted job repeats have been published before and are not
    changed. A step's report may come a poll later than its metrics line, so each has a number of its own. A report of a
    step without a line is the step.

    Args:
        lines: Lines of the log; read up to the end or until the batch is full.
        cursor: Position of what has been published.
        progress: The spec's section.
        lines_apart: Steps between two lines of a format that has no numbers.
    """
    reader = _reader(cursor, progress, lines_apart)
    batch = Batch(hang=cursor.hang)
    last_step, last_report = cursor.last_step, cursor.last_report
    figures = frozenset(cursor.figures_of_last_step)
    read = 0
    first, second, third = reader.clues
    clue1, clue2, clue3, clue4 = CLUES
    for read, line in enumerate(lines, start=1):  # noqa: B007  (counts the lines)
        words = line.text.lower()
        if batch.hang or clue1 in words or clue2 in words or clue3 in words or clue4 in words:
            batch.watch_hang(line)
        if CHECKPOINT in line.text or HUGGING_FACE in line.text:
            saved = parse_checkpoint_line(line.text, line.logged_at)
            if saved is not None:
                batch.checkpoints.append(saved)
                batch.hang = None
                continue
        if RESUMED in line.text and (number := parse_resumed_line(line.text)) is not None:
            batch.resumed_from = number
            continue
        if LOST_FILES in line.text and (lost := parse_lost_files_line(line.text)) is not None:
            batch.lost_files = lost
            continue
        if first not in line.text and second not in line.text and third not in line.text:
            continue
        for found in reader.read(line):
            batch.hang = None
            if isinstance(found, StepReport):
                if last_step is not None and found.step <= last_step:
                    if last_report is None or found.step > last_report:
                        report = found.without(figures) if found.step == last_step else found
                        batch.add_report(found.time(line.logged_at), report)
                        last_report = found.step
                    else:
                        batch.has_replays = True
                    continue
                last_report, found = found.step, found.as_step(line.logged_at)
            if last_step is None or found.step > last_step:
                batch.add_step(found)
                last_step, figures = found.step, frozenset(found.metrics)
            else:
                batch.has_replays = True
        first, second, third = reader.clues
        if batch.is_full:
            break
    batch.num_lines, batch.format_name = read, reader.format_name
    batch.num_unparsable = reader.num_unparsable
    return batch


def _at_least(step: int | None) -> float:
    return -math.inf if step is None else step


def _reader(cursor: MetricsCursor, progress: Literal["auto", "none"] | Format, lines_apart: int) -> ProgressReader:
    """The reader that continues behind a cursor; one of an earlier version has read Trainflow's own lines alone."""
    own = TRAINFLOW if cursor.last_step is not None else None
    numbering = Numbering(lines_apart, last_step=cursor.last_step or 0, last_epoch=cursor.last_epoch)
    return ProgressReader(progress, format_name=cursor.format_name or own, numbering=numbering)


def is_behind(cursor: MetricsCursor, published: MetricsCursor) -> bool:
    """Whether more has been published than a cursor says."""
    return any(
        _at_least(of_cursor) < _at_least(of_published)
        for of_cursor, of_published in (
            (cursor.last_step, published.last_step),
            (cursor.last_report, published.last_report),
            (cursor.last_checkpoint, published.last_checkpoint),
        )
    )


def advanced(cursor: MetricsCursor, batch: Batch, *, log: LogPosition | None, now: datetime) -> MetricsCursor:
    """The cursor after a batch has been published.

    Args:
        cursor: The cursor before the batch.
        batch: The batch that has been published.
        log: Position behind the batch's last line.
        now: Time of the poll.
    """
    steps = batch.steps
    ahead = cursor.model_copy(
        update={
            "log": log,
            # Steps that a restarted job repeats are signs of life.
            "progressed_at": now if batch.has_replays else cursor.progressed_at,
            "format_name": batch.format_name or cursor.format_name,
            "metric_names": _metric_names(cursor, batch),
            "num_lines": min(cursor.num_lines + batch.num_lines, LINES_BEFORE_WARNING),
            "lines_unparsable": cursor.lines_unparsable + batch.num_unparsable,
            "printed_at": now if batch.num_lines else cursor.printed_at,
            "read_at": now,
            "last_report": _last_report(cursor, batch),
            "lost_files": batch.lost_files or cursor.lost_files,
            "hang": _hang(batch, now=now),
            "longest_pause_seconds": _longest_pause_seconds(cursor, batch, log=log, now=now),
            "last_checkpoint": _last_checkpoint(cursor, batch),
        }
    )
    if not steps:
        return ahead
    newest, losses = steps[-1], [step.loss for step in steps if step.loss is not None]
    non_finite = non_finite_steps(steps)
    return ahead.model_copy(
        update={
            "non_finite_steps": cursor.non_finite_steps + len(non_finite),
            "first_non_finite_step": next(iter(non_finite), None)
            if cursor.first_non_finite_step is None
            else cursor.first_non_finite_step,
            "non_finite_in_a_row": _non_finite_in_a_row(cursor, losses),
            "first_step": steps[0].step if cursor.first_step is None else cursor.first_step,
            "first_step_at": now if cursor.first_step is None else cursor.first_step_at,
            "last_step": newest.step,
            "last_epoch": newest.epoch if newest.epoch is not None else cursor.last_epoch,
            "datapoints": cursor.datapoints + len(steps),
            "first_loss": _finite(losses[0]) if losses and cursor.first_loss is None else cursor.first_loss,
            "last_loss": _finite(losses[-1]) if losses else cursor.last_loss,
            "figures_of_last_step": tuple(newest.metrics),
            "progressed_at": now,
        }
    )


def _hang(batch: Batch, *, now: datetime) -> Hang | None:
    """The hang that is known after a batch. One that the batch was the first to tell of has been seen now."""
    if batch.hang is None or not batch.hang_is_new:
        return batch.hang
    return batch.hang.model_copy(update={"seen_at": now})


def _longest_pause_seconds(cursor: MetricsCursor, batch: Batch, *, log: LogPosition | None, now: datetime) -> float:
    """The longest pause between steps; that between two pods' has a restart in it."""
    is_same_pod = cursor.log is not None and log is not None and cursor.log.pod == log.pod
    if not is_same_pod or cursor.progressed_at is None or not (batch.steps or batch.has_replays):
        return cursor.longest_pause_seconds
    return max(cursor.longest_pause_seconds, (now - cursor.progressed_at).total_seconds())


def _metric_names(cursor: MetricsCursor, batch: Batch) -> tuple[str, ...]:
    """The names that are published: those of before, and new ones while there is room."""
    names = dict.fromkeys(cursor.metric_names)
    for figures in (*(step.metrics for step in batch.steps), *(report.others for _, report in batch.reports)):
        for name in figures:
            if len(names) < MAX_METRIC_NAMES and name not in TABLE_FIELDS:
                names.setdefault(name)
    return tuple(names)


def _last_report(cursor: MetricsCursor, batch: Batch) -> int | None:
    return batch.reports[-1][1].step if batch.reports else cursor.last_report


def _last_checkpoint(cursor: MetricsCursor, batch: Batch) -> int | None:
    numbers = (cursor.last_checkpoint, batch.resumed_from, *(saved.step for saved in batch.checkpoints))
    return max((number for number in numbers if number is not None), default=None)


def _non_finite_in_a_row(cursor: MetricsCursor, losses: Sequence[float]) -> int:
    """Number of the newest losses that are not finite, those of earlier batches included."""
    newest = sum(1 for _ in takewhile(lambda loss: not math.isfinite(loss), reversed(losses)))
    return newest + (cursor.non_finite_in_a_row if newest == len(losses) else 0)


def _finite(loss: float | None) -> float | None:
    """A finite loss, or None: the cursor is passed as JSON, which has no NaN."""
    return loss if loss is not None and math.isfinite(loss) else None
