"""New steps in the lines of rank 0's log. Each step is found exactly once, also across polls."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from lambdas.logic.in_place import counted, in_place_restart
from lambdas.logic.signs_of_life import NEWEST_LINES, RecentLines
from trainflow.failures.hangs import CLUES, hang_line
from trainflow.observed.step import OWN_FIGURES, Step
from trainflow.progress.missing_steps import StepWatch
from trainflow.progress.reader import ProgressReader
from trainflow.progress.steps_again import RepetitionWatch, with_repetitions
from trainflow.protocol.checkpoint_line import (
    CHECKPOINT,
    HUGGING_FACE,
    RESUMED,
    CheckpointReport,
    parse_checkpoint_line,
    parse_resumed_line,
)
from trainflow.protocol.lost_files import LOST_FILES, LostFiles, parse_lost_files_line
from trainflow.protocol.reported_checkpoints import CLUES as CHECKPOINT_CLUES
from trainflow.protocol.reported_checkpoints import Reported, newer
from trainflow.protocol.restart_line import RESTARTED, Restarted, parse_restarted_line
from trainflow.protocol.step_report import is_relayed
from trainflow.record.steps import newest_losses, non_finite_steps
from trainflow.spec.progress import Format
from trainflow.workflow.learned_progress import LearnedProgress
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.metric_names import STEP_FIGURES
from trainflow.workflow.run import Hang, Ignored, InPlaceRestart, LogPosition, MetricsCursor

MAX_FIGURES_PER_BATCH = 840
"""Data points that fill a batch. One more step adds fewer than 3 + 2 × `metric_aliases.MAX_METRICS`, the cluster a few.
Together they fit one call of PutMetricData, which takes 1,000."""

MAX_METRIC_NAMES = 10
"""Most figures of a program's own that are published: CloudWatch bills each name of each run as a metric, by the
month."""

AFTERMATH = timedelta(seconds=30)
"""Lines within this time after a report of a hang belong to it: stacks, dumps, reports of other ranks."""

FURTHER_FIGURES = frozenset(row.name for row in STEP_FIGURES) - frozenset(OWN_FIGURES)
"""Further figures that have a metric of Trainflow's."""


@dataclass
class Batch:
    """Steps beyond the cursor, in ascending order."""

    steps: list[Step] = field(default_factory=list)
    """New steps. The first may complete the last step of the previous batch."""
    incomplete: Step | None = None
    """The last of them if its report may follow."""
    checkpoints: list[CheckpointReport] = field(default_factory=list)
    """Checkpoints that the program has reported."""
    resumed_from: int | None = None
    """Number of the checkpoint that the job resumed from."""
    resumed_step: int | None = None
    """First step since that line, or of the batch, also one that was published before."""
    restarts: list[InPlaceRestart] = field(default_factory=list)
    """Restarts in the pods."""
    lost_files: LostFiles | None = None
    """Files that the program has left in its working folder."""
    watch: StepWatch = field(default_factory=lambda: StepWatch(MetricsCursor()))
    """Lines since the newest step."""
    repetitions: RepetitionWatch = field(default_factory=lambda: RepetitionWatch(MetricsCursor()))
    """Steps that a program repeats after a restart."""
    reported_checkpoint: Reported | None = None
    """A checkpoint that the lines report, compared with the spec's pattern."""
    num_lines: int = 0
    """Lines that were read."""
    num_unparsable: int = 0
    """Those of them that looked like lines of steps, and could not be read as such."""
    format_name: str | None = None
    """Format of the progress, if one is known by now."""
    learned: LearnedProgress = field(default_factory=LearnedProgress)
    """State of the general reader, which reads lines in other formats."""
    num_figures: int = 0
    """Data points of the steps, at most."""
    has_replays: bool = False
    """Whether there were lines of steps that have been published before: a restarted job repeats them."""
    newest_lines: deque[str] = field(default_factory=lambda: deque(maxlen=NEWEST_LINES))
    """The newest lines behind the last step."""
    hang: Hang | None = None
    """A hang that these or earlier lines report, if no other line has followed."""
    hang_is_new: bool = False
    """Whether these lines were the first to report it."""

    @property
    def is_full(self) -> bool:
        """Whether the log may contain more behind this batch."""
        return self.num_figures >= MAX_FIGURES_PER_BATCH

    def behind(self, published: MetricsCursor) -> Batch:
        """The part of the batch behind what has been published."""
        steps = [rest for step in self.steps if (rest := unpublished(step, published)) is not None]
        return replace(self, steps=steps, has_replays=self.has_replays or len(steps) < len(self.steps))

    def watch_hang(self, line: LogLine) -> None:
        """Remember what a line says of a hang, and forget it when another line shows that the program goes on: one that
        the program has printed, since a library also dumps files when it gives up."""
        said = hang_line(line.text)
        if said is not None and self.hang is not None:
            self.hang = self.hang.model_copy(update={"logged_at": line.logged_at})
        elif said is not None:
            self.hang = Hang(error=said.error, line=said.text, logged_at=line.logged_at, seen_at=line.logged_at)
            self.hang_is_new = True
        elif self.hang is not None and line.logged_at - self.hang.logged_at > AFTERMATH and not is_relayed(line.text):
            self.hang = None

    def end_hang(self, line: LogLine, steps: Sequence[Step]) -> None:
        """Forget a hang for a line with steps; those of files may have been made long before they are printed."""
        hang = self.hang
        if hang and (not is_relayed(line.text) or any(step.logged_at > hang.logged_at for step in steps)):
            self.hang = None

    def add(self, step: Step, cursor: MetricsCursor) -> None:
        """Append a step if it is new."""
        if self.resumed_step is None and not step.is_addition:
            self.resumed_step = step.step
        last_step = self.steps[-1].step if self.steps else cursor.last_step
        if last_step is None or step.step > last_step or step.is_addition:
            self.steps.append(step)
            self.num_figures += len(OWN_FIGURES) + len(step.metrics)
        else:
            self.has_replays = True


def unpublished(step: Step, published: MetricsCursor) -> Step | None:
    """The part of a step that has not been published; None if all of it has."""
    if published.last_step is None or step.step > published.last_step:
        return step
    if step.step < published.last_step or published.figures_before_report is None:
        return None
    rest = step.addition(published.figures_before_report)
    return rest if rest.metrics else None


def next_batch(
    lines: Iterable[LogLine],
    cursor: MetricsCursor,
    *,
    progress: Literal["auto", "none"] | Format = "auto",
    lines_apart: int = 1,
    total: int | None = None,
    is_new_log: bool = False,
    reported: Callable[[str], Reported | None] | None = None,
) -> Batch:
    """The new steps in the next lines.

    The step number decides what is new: steps that a restarted job repeats have been published before and are not
    changed. A step's report may come a poll later than its metrics line: its figures are an addition.

    Args:
        lines: Lines of the log; read up to the end or until the batch is full.
        cursor: Position of what has been published.
        progress: The spec's section.
        lines_apart: Steps between two lines of a format without step numbers.
        total: Last step of the training; None if it is unknown.
        is_new_log: Whether the lines are the first ones of another log.
        reported: Finds the checkpoint that a line reports; None for a spec without checkpoints.
    """
    reader = ProgressReader(progress, lines_apart=lines_apart, total=total, behind=cursor)
    watch = StepWatch(cursor, is_watched=progress != "none", is_new_log=is_new_log)
    batch = Batch(watch=watch, hang=cursor.hang, repetitions=RepetitionWatch(cursor, is_new_log=is_new_log))
    read, newest_lines = 0, batch.newest_lines
    clue1, clue2, clue3, clue4 = CLUES
    for read, line in enumerate(lines, start=1):  # noqa: B007  (counts the lines)
        newest_lines.append(line.text)
        words = line.text.lower()
        if batch.hang or clue1 in words or clue2 in words or clue3 in words or clue4 in words:
            batch.watch_hang(line)
        if reported is not None and any(clue in words for clue in CHECKPOINT_CLUES):
            batch.reported_checkpoint = newer(batch.reported_checkpoint, reported(line.text))
        if CHECKPOINT in line.text or HUGGING_FACE in line.text:
            saved = parse_checkpoint_line(line.text, line.logged_at)
            if saved is not None:
                batch.checkpoints.append(saved)
                batch.hang = None
                continue
        if RESUMED in line.text and (number := parse_resumed_line(line.text)) is not None:
            batch.resumed_from, batch.resumed_step = number, None
            continue
        if RESTARTED in line.text and (said := parse_restarted_line(line.text)) is not None:
            batch.restarts.append(_restart(said, line, batch, cursor, held=reader.held))
            batch.repetitions.begin(line.logged_at, reader.held)
            batch.hang = None
            continue
        if LOST_FILES in line.text and (lost := parse_lost_files_line(line.text)) is not None:
            batch.lost_files = lost
            continue
        found_before = reader.num_found
        steps = reader.read(line)
        batch.repetitions.add(steps, line.logged_at)
        for step in steps:
            batch.add(step, cursor)
        if reader.num_found == found_before:
            watch.add(line)
        else:
            watch.found(line, reader.last_step)
            batch.end_hang(line, steps)
            newest_lines.clear()
        if batch.is_full:
            break
    if reader.held is not None:
        batch.repetitions.add([reader.held], reader.held.logged_at)
        batch.add(reader.held, cursor)
        batch.incomplete = reader.held
    batch.num_lines, batch.format_name = read, reader.format_name
    batch.num_unparsable, batch.learned = reader.num_unparsable, reader.learned
    return batch


def _restart(
    said: Restarted, line: LogLine, batch: Batch, cursor: MetricsCursor, *, held: Step | None
) -> InPlaceRestart:
    """A restart after the steps and checkpoints that have been read so far."""
    known = (cursor.last_step, *(step.step for step in (*batch.steps[-1:], *([held] if held else []))))
    last_step = max((step for step in known if step is not None), default=None)
    return in_place_restart(said, line, last_step=last_step, last_checkpoint=_last_checkpoint(cursor, batch))


def _at_least(step: int | None) -> float:
    return -math.inf if step is None else step


def is_behind(cursor: MetricsCursor, published: MetricsCursor) -> bool:
    """Whether more has been published than a cursor says."""
    return _progress(cursor) < _progress(published) or (
        _at_least(cursor.last_checkpoint) < _at_least(published.last_checkpoint)
    )


def _progress(cursor: MetricsCursor) -> tuple[float, bool]:
    """The newest step, and whether it is complete."""
    return _at_least(cursor.last_step), cursor.figures_before_report is None


def advanced(cursor: MetricsCursor, batch: Batch, *, log: LogPosition | None, now: datetime) -> MetricsCursor:
    """The cursor after a batch has been published.

    Args:
        cursor: The cursor before the batch.
        batch: The batch that has been published.
        log: Position behind the batch's last line.
        now: Time of the poll.
    """
    steps = [step for step in batch.steps if not step.is_addition]
    is_alive, known_lines = _life(cursor, batch, log=log)
    ahead = cursor.model_copy(
        update={
            "log": log,
            # Steps that a restarted job repeats are signs of life.
            "progressed_at": now if batch.has_replays else cursor.progressed_at,
            "format_name": batch.format_name or cursor.format_name,
            "learned": batch.learned,
            "metric_names": _metric_names(cursor, batch),
            "since_step": batch.watch.polled(now),
            "lines_unparsable": cursor.lines_unparsable + batch.num_unparsable,
            "printed_at": now if batch.num_lines else cursor.printed_at,
            "changed_at": now if is_alive else cursor.changed_at,
            "known_lines": known_lines,
            "read_at": now,
            "figures_before_report": _figures_before_report(cursor, batch),
            "lost_files": batch.lost_files or cursor.lost_files,
            "reported_checkpoint": newer(cursor.reported_checkpoint, batch.reported_checkpoint),
            "hang": _hang(batch, now=now),
            "longest_pause_seconds": _longest_pause_seconds(cursor, batch, log=log, now=now),
            "last_checkpoint": _last_checkpoint(cursor, batch),
            **with_repetitions(cursor, batch.repetitions),
            **_resumed(cursor, batch),
            **counted(cursor, batch.restarts),
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
            **newest_losses(cursor, steps),
            "first_step": steps[0].step if cursor.first_step is None else cursor.first_step,
            "first_step_at": now if cursor.first_step is None else cursor.first_step_at,
            "last_step": newest.step,
            "last_epoch": newest.epoch if newest.epoch is not None else cursor.last_epoch,
            "datapoints": cursor.datapoints + len(steps),
            "first_loss": _finite(losses[0]) if losses and cursor.first_loss is None else cursor.first_loss,
            "last_loss": _finite(losses[-1]) if losses else cursor.last_loss,
            "progressed_at": now,
        }
    )


def _life(cursor: MetricsCursor, batch: Batch, *, log: LogPosition | None) -> tuple[bool, tuple[int, ...]]:
    """Whether the lines of a batch are a sign of life, and the lines to compare the next ones with."""
    # Decision 88: what a program prints after a step is compared only with what it has printed since.
    has_steps = bool(batch.steps or batch.has_replays)
    begins = has_steps or not _is_same_pod(cursor, log)
    recent = RecentLines(() if begins else cursor.known_lines)
    signs = [recent.add(text) for text in batch.newest_lines]
    return has_steps or bool(batch.checkpoints) or any(signs), recent.known


def _is_same_pod(cursor: MetricsCursor, log: LogPosition | None) -> bool:
    return cursor.log is not None and log is not None and cursor.log.pod == log.pod


def _hang(batch: Batch, *, now: datetime) -> Hang | None:
    """The hang that is known after a batch. If the batch was the first to report it, it has been seen now."""
    if batch.hang is None or not batch.hang_is_new:
        return batch.hang
    return batch.hang.model_copy(update={"seen_at": now})


def _longest_pause_seconds(cursor: MetricsCursor, batch: Batch, *, log: LogPosition | None, now: datetime) -> float:
    """The longest pause between steps; that between two pods' has a restart in it."""
    if not _is_same_pod(cursor, log) or cursor.progressed_at is None or not (batch.steps or batch.has_replays):
        return cursor.longest_pause_seconds
    return max(cursor.longest_pause_seconds, (now - cursor.progressed_at).total_seconds())


def _metric_names(cursor: MetricsCursor, batch: Batch) -> tuple[str, ...]:
    """The names that are published: those of before, and new ones while there is room."""
    names = dict.fromkeys(cursor.metric_names)
    for step in batch.steps:
        for name in step.metrics:
            if len(names) < MAX_METRIC_NAMES and name not in FURTHER_FIGURES:
                names.setdefault(name)
    return tuple(names)


def _figures_before_report(cursor: MetricsCursor, batch: Batch) -> tuple[str, ...] | None:
    if not batch.steps:
        return cursor.figures_before_report
    return tuple(batch.incomplete.metrics) if batch.incomplete is batch.steps[-1] else None


def _resumed(cursor: MetricsCursor, batch: Batch) -> dict[str, int | Ignored | None]:
    """The checkpoint of the newest job, its first step, and the first checkpoint that a job seems to have ignored."""
    number, step = batch.resumed_from, batch.resumed_step
    if number is None:
        number, step = cursor.resumed_from, step if cursor.resumed_step is None else cursor.resumed_step
    is_ignored = number is not None and step is not None and step < number
    ignored = Ignored(checkpoint=number, step=step) if is_ignored and cursor.ignored is None else cursor.ignored
    return {"resumed_from": number, "resumed_step": step, "ignored": ignored}


def _last_checkpoint(cursor: MetricsCursor, batch: Batch) -> int | None:
    numbers = (cursor.last_checkpoint, batch.resumed_from, *(saved.step for saved in batch.checkpoints))
    return max((number for number in numbers if number is not None), default=None)


def _finite(loss: float | None) -> float | None:
    """A finite loss, or None: the cursor is passed as JSON, which cannot hold NaN."""
    return loss if loss is not None and math.isfinite(loss) else None
