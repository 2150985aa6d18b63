"""Finds the steps in the lines of a log, in the format that the spec names or that the log shows.

With `auto` a line of a known library chooses the format; the general reader (`general.py`) reads every other line. One
line that looks like another format changes nothing: several have to come while the old format shows none. Trainflow's
own lines (`metrics_line`, `step_report`) count at once, since no program prints them by accident.

A program may print a metrics line and then a report of the same step. The reader holds the line until the step is
finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from typing import Literal

from trainflow.observed.step import Step, parse_metrics_line, parse_report_line, step_from_figures
from trainflow.progress import formats
from trainflow.progress.formats import TOTAL
from trainflow.progress.general import GeneralReader
from trainflow.progress.numbering import CountedLines
from trainflow.protocol.metric_aliases import SEQUENCES, whole
from trainflow.protocol.metrics_line import PREFIX
from trainflow.protocol.own_lines import is_own_line
from trainflow.protocol.speed_units import item_behind
from trainflow.protocol.step_report import METRICS, is_relayed, report_figures
from trainflow.spec.line_pattern import LONGEST_PIECE, LinePattern, PatternRefused
from trainflow.spec.progress import Format, read_from_files
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.learned_progress import LearnedProgress
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import MetricsCursor

TRAINFLOW = "trainflow"
"""Format of Trainflow's own two lines."""

FILES = "files"
"""Steps that a program beside the training has found in its files; they count only where the log shows none."""

PATTERN, JSON_LINES, JSON_STEP, GENERAL = "pattern", "json_lines", "json", "general"

COUNTED = "unit of the throughput"
"""Key of the unit that stands behind a pattern's throughput; no group has this name."""

NAME_LENGTH = (PATTERN, "megatron")
"""Formats whose lines may name the last step of the training."""

AUTOMATIC = (JSON_STEP, *formats.PRESETS)
"""Formats that `auto` tries, in this order, besides Trainflow's own lines."""

LINES_TO_CHANGE = 3
"""Lines of a library's format that change the format, while the general reader has read no line."""

LINES_TO_DOUBT = 50
"""Lines without a step until lines without the word `loss` are looked at beside a library's format."""

LONGEST_LINE = 64 * 1024
"""Characters of a line that are read; what a function keeps of a line is as long."""

_LIKE_OWN = re.compile(rf"^{PREFIX}\s*LOG\s")
_SURELY_OWN = re.compile(rf"^{PREFIX}\s*LOG\s+\w{{3}}\s+\w{{3}}\s+\d")
"""Beginnings of Trainflow's metrics line: in a log that has shown such lines, and in one that has shown none yet, where
another program's lines may begin with the word as well."""

_LIKE_JSON = re.compile(rf'^{PREFIX}\s*\{{\s*"')

Parse = Callable[[str], formats.Figures | None]


class ProgressReader:
    """Reads the lines of one log in their order.

    Args:
        progress: The spec's section.
        lines_apart: Steps between two lines of a format without numbers.
        total: Last step of the training, where counting ends; None if it is unknown.
        behind: Position of the last line that was read before.
    """

    def __init__(
        self,
        progress: Literal["auto", "none"] | Format,
        *,
        lines_apart: int = 1,
        total: int | None = None,
        behind: MetricsCursor | None = None,
    ) -> None:
        before = behind or MetricsCursor()
        self._is_automatic = progress == "auto"
        self._numbering = CountedLines(lines_apart, before.last_step or 0, before.last_epoch, total)
        self._incomplete_step, self._known_figures = before.last_step, before.figures_before_report
        self._pattern = _line_pattern(progress)
        self._preset = progress.preset if isinstance(progress, Format) else None
        self.format_name = _format_behind(before) if self._is_automatic else _chosen_format(progress)
        """Name of the format; None while none is known."""
        if self._preset and before.format_name == GENERAL:
            self.format_name = GENERAL
        self._names_files = read_from_files(progress)
        if before.format_name == FILES and not self._names_files:
            self.format_name = FILES
        self._clues = _clues(self.format_name)
        self._lines_without_step = 0
        self.num_found = 0
        """Steps and reports that were found, finished or not."""
        self.num_unparsable = 0
        """Lines that looked like lines of steps in the format, and could not be read as such."""
        self._general: GeneralReader | None = None
        self._started = before.last_step is not None
        self._has_loss = before.last_loss is not None
        self._matches_of_others = 0
        self._newest_at = datetime.min
        if self._is_automatic or self._preset:
            self._general = GeneralReader(deepcopy(before.learned))
        self._held: Step | None = None
        """The step of the newest metrics line as long as its report may follow. The end of the lines finishes it."""

    @property
    def held(self) -> Step | None:
        """The newest step as long as more of it may follow. The end of the lines finishes it."""
        if self._held is not None or self._general is None or self.format_name != GENERAL:
            return self._held
        unfinished = self._general.unfinished()
        if unfinished is None:
            return None
        step, figures = unfinished
        return step_from_figures({"step": step, **figures}, logged_at=self._newest_at)

    @property
    def learned(self) -> LearnedProgress:
        """State of the general reader."""
        return self._general.learned if self._general else LearnedProgress()

    def read(self, line: LogLine) -> list[Step]:
        """The steps that a line finishes, in the order of the log."""
        if not self._has_clue(line.text) or is_own_line(line.text):
            self._lines_without_step += 1
            return []
        found_before = self.num_found
        steps = list(self._found(line))
        if self.num_found > found_before:
            self._lines_without_step = 0
            self._clues = _clues(self.format_name)
        else:
            self._lines_without_step += 1
        return steps

    def _has_clue(self, text: str) -> bool:
        first, second, third = self._clues
        if first in text or second in text or third in text:
            return True
        if self._general is None or self.format_name == TRAINFLOW:
            return False
        lower = text.lower()
        if self._reads_library() and self._lines_without_step < LINES_TO_DOUBT:
            return "loss" in lower
        return self._general.may_read(lower)

    def _reads_library(self) -> bool:
        """Whether the steps are in the format of a library, or in JSON."""
        return self.format_name not in (None, GENERAL) and (self.num_found > 0 or self._started)

    @property
    def last_step(self) -> int | None:
        """The newest step, those that were read before included."""
        return self._numbering.last_step if self._started or self.num_found else None

    def _found(self, line: LogLine) -> Iterator[Step]:
        """The finished steps, those of one line in ascending order.

        A bar is one line that is written over: it shows a step again with a newer loss, and the last one counts,
        and an epoch's beginning again at its end.
        """
        shown: Step | None = None
        for piece in line.text.split("\r") if "\r" in line.text else (line.text,):
            text = piece[:LONGEST_LINE]
            is_found_in_files = METRICS in text and not self._names_files and is_relayed(text)
            if is_found_in_files and not self._reads_files(text):
                continue
            if self._is_automatic or self.format_name in (TRAINFLOW, FILES) or is_found_in_files:
                own = self._own_line(text, line.logged_at, FILES if is_found_in_files else TRAINFLOW)
                if own is not None:
                    yield from own
                    continue
            steps = self._steps(text, line.logged_at)
            if not steps and self._is_unparsable(text):
                self.num_unparsable += 1
            for step in steps:
                if shown is not None and step.step < shown.step:
                    continue
                self._count(step)
                if shown is not None and shown.step < step.step:
                    yield shown
                shown = step
        if shown is not None:
            yield shown

    def _reads_files(self, piece: str) -> bool:
        """Whether steps are read from files that the spec does not name: the log has shown none, or none with a loss,
        and the files have one."""
        # Decision 88: the log first, and never both, which would show each step twice.
        if self.format_name == FILES or not (self._started or self.num_found):
            return True
        figures = None if self._has_loss else report_figures(piece)
        return figures is not None and "loss" in figures and figures["step"] >= (self._numbering.last_step or 0)

    def _own_line(self, piece: str, printed_at: datetime, name: str) -> list[Step] | None:
        """The steps that one of Trainflow's own lines finishes; None for any other line."""
        # Decision 82: only this reader puts the two lines of a step together.
        if "step_loss" in piece and (step := parse_metrics_line(piece)) is not None:
            finished, self._held = [self._held] if self._held else [], step
        elif METRICS in piece and (step := parse_report_line(piece, printed_at)) is not None:
            finished = self._reported(step)
        else:
            return None
        self.format_name = name
        self._count(step)
        return finished

    def _reported(self, report: Step) -> list[Step]:
        """The steps that a report finishes. One without a metrics line is a step by itself."""
        held = self._held
        if held is None or held.step > report.step:
            return [self._completed(report)]
        self._held = None
        return [self._completed(held.with_metrics(report.metrics))] if held.step == report.step else [held, report]

    def _completed(self, step: Step) -> Step:
        """A step with its report; only the report's figures if the lines that were read before end with the step."""
        known = self._known_figures
        if known is None or not step.step == self._incomplete_step == self._numbering.last_step:
            return step
        self._known_figures = None
        return step.addition(known)

    def _count(self, step: Step) -> None:
        self.num_found += 1
        self._has_loss |= step.loss is not None
        self._numbering.advance(step.step, step.epoch)

    def _steps(self, piece: str, logged_at: datetime) -> list[Step]:
        """The steps of a line, in the format that is read; otherwise a library's format counts before the general
        reader."""
        general_first = self.format_name == GENERAL and not self._preset
        if general_first and (found := self._steps_of_any_form(piece, logged_at)):
            return found
        step = self._step_of_library(piece, logged_at)
        if step is None:
            return [] if general_first else self._steps_of_any_form(piece, logged_at)
        if self._general is not None:
            self._general.forget()
        return [step]

    def _steps_of_any_form(self, piece: str, logged_at: datetime) -> list[Step]:
        if self._general is None or self.format_name in (TRAINFLOW, FILES):
            return []
        self._newest_at = logged_at
        found = self._general.read(piece, logged_at, newest_step=self.last_step, reads_other=self._reads_library())
        if found:
            self.format_name, self._matches_of_others = GENERAL, 0
        steps = (
            step_from_figures({"step": each.step, **each.figures}, logged_at=each.logged_at, length=each.length)
            for each in found
        )
        return [step for step in steps if step is not None]

    def _step_of_library(self, piece: str, logged_at: datetime) -> Step | None:
        for name in self._names():
            figures = self._figures(name, piece)
            if figures is None:
                continue
            step = _step(figures, name, logged_at)
            if step is not None and self._may_change_to(name):
                self.format_name = name
                return step
            # A pattern finds lines of steps alone; other formats also find figures in lines of another meaning.
            self.num_unparsable += name == PATTERN
        return None

    def _names(self) -> tuple[str, ...]:
        """The formats that are tried."""
        if self._preset:
            return (self._preset,)
        if self.format_name is None or self.format_name == GENERAL:
            return AUTOMATIC
        return (self.format_name,)

    def _may_change_to(self, name: str) -> bool:
        """Whether a library's line counts although the general reader reads another one."""
        if self.format_name != GENERAL or self._preset:
            return True
        self._matches_of_others += 1
        return self._matches_of_others >= LINES_TO_CHANGE

    def _is_unparsable(self, piece: str) -> bool:
        """Whether a line without a step looks like a line of one. A library's own lines cannot be recognized safely."""
        match self.format_name:
            case "trainflow":
                return _LIKE_OWN.match(piece) is not None or f'{{"{METRICS}":' in piece
            case None:
                return _SURELY_OWN.match(piece) is not None or f'{{"{METRICS}":' in piece
            case "json_lines":
                return _LIKE_JSON.match(piece) is not None and not _is_json(piece[piece.find("{") :])
        return False

    def _figures(self, name: str, piece: str) -> formats.Figures | None:
        match name:
            case "pattern":
                return self._groups(piece)
            case "json_lines":
                return formats.json_object(piece)
            case "json":
                return formats.json_step(piece)
        preset = formats.PRESETS.get(name)
        figures = preset.parse(piece) if preset else None
        if preset is None or figures is None or preset.has_steps or "step" in figures:
            return figures
        try:
            epoch = float(str(figures.get("epoch")))
        except ValueError:
            epoch = None
        return {**figures, "step": self._numbering.number(epoch)}

    def _groups(self, piece: str) -> formats.Figures | None:
        found = self._pattern.search(piece[:LONGEST_PIECE]) if self._pattern else None
        if found is None:
            return None
        said = dict(found)
        if "throughput" in said:
            said[COUNTED] = item_behind(said["throughput"], piece) or SEQUENCES
            said["sequences_per_second"] = said.pop("throughput")
        return said


def _step(figures: formats.Figures, name: str, logged_at: datetime) -> Step | None:
    """The step of a library's line, which may also name its last step, and the unit of a pattern's throughput."""
    if name not in NAME_LENGTH:
        return step_from_figures(figures, logged_at=logged_at)
    own = {key: value for key, value in figures.items() if key not in (TOTAL, COUNTED)}
    step = step_from_figures(own, logged_at=logged_at, length=whole(figures.get(TOTAL)))
    counted = figures.get(COUNTED)
    return replace(step, throughput_of=str(counted)) if step is not None and counted is not None else step


def _clues(format_name: str | None) -> tuple[str, str, str]:
    """Three words. Each line of a step has one of them; almost every line of a verbose program lacks them."""
    match format_name:
        case "pattern":
            return "", "", ""
        case "json_lines":
            return "{", "{", "{"
        case "none":
            return "\n", "\n", "\n"  # in no line
        case "trainflow":
            return "step_loss", METRICS, "LOG "
        case "files":
            return "step_loss", METRICS, METRICS
    return "loss", METRICS, "LOG "


def _line_pattern(progress: Literal["auto", "none"] | Format) -> LinePattern | None:
    """The pattern of a spec; None without one, and for one of an earlier version that is refused today."""
    if not isinstance(progress, Format) or progress.pattern is None:
        return None
    try:
        return LinePattern(progress.pattern)
    except PatternRefused:
        return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _format_behind(position: MetricsCursor) -> str | None:
    """The format that earlier lines have shown; an earlier version has read Trainflow's own lines only."""
    return position.format_name or (TRAINFLOW if position.last_step is not None else None)


def _chosen_format(progress: Literal["auto", "none"] | Format) -> str | None:
    if not isinstance(progress, Format):
        return None if progress == "auto" else "none"
    if progress.preset:
        return progress.preset
    if read_from_files(progress):
        return TRAINFLOW
    return PATTERN if progress.pattern else JSON_LINES


def lines_apart(spec: RunSpec) -> int:
    """Steps between two lines of a program that numbers none: Hugging Face's `logging_steps` if the spec says it."""
    given: Mapping[str, object] = spec.workload.arguments
    said = given.get("logging_steps")
    return said if isinstance(said, int) and not isinstance(said, bool) and said >= 1 else 1


def unparsable_warning(num_unparsable: int) -> str | None:
    """Warning about lines that could not be read; None without such lines."""
    if not num_unparsable:
        return None
    lines = "1 line" if num_unparsable == 1 else f"{num_unparsable:,} lines"
    return (
        f"{lines} of rank 0's log look like a step's and cannot be read: see whether several processes print at once."
    )
