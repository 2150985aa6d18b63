"""Steps that a log lacks: when the owner has to know it, and the sentence that says what was seen.

The lines and their times decide; the time of the poll matters little. So the workflow and those who follow a
run come to the same sentence (docs/decisions/0088-life-without-steps.md).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from trainflow.progress.ansi import without_colours
from trainflow.progress.pattern_proposal import proposed_pattern
from trainflow.protocol.own_lines import is_own_line
from trainflow.protocol.step_report import is_relayed
from trainflow.spec.line_pattern import pattern_problem
from trainflow.spec.progress import Format, named, read_from_files
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import LinesSinceStep, MetricsCursor, StepsMissing

LINES_BEFORE_WARNING = 200
"""Number of lines without a first step until the format is probably wrong."""

PATIENCE = timedelta(minutes=2)
"""Shortest time without a step until the owner has to know it."""

TIMES_LONGER = 3.0
"""The next step is overdue after this many times the longest time until a step: a training also evaluates and saves."""

RECENT_LINES = 50
"""Newest lines of a batch that are searched for numbers."""

MOST_QUOTED = 3
"""Most lines without a step that a warning quotes."""

LONGEST_QUOTED = 200
"""Characters of a line that it quotes."""

KEPT_LINES = 8
"""Newest lines with a number that travel from poll to poll."""

LEAST_LINES = 10
"""Lines without a step that are worth a sentence at the end of a log, even if none of them looks like progress: other
programs than trainings print a few."""

_DIGIT = re.compile(r"\d")
_OF_PROGRESS = re.compile(r"(?:loss|step|iter|epoch|batch|update)\w{0,12}[^\w\n]{0,12}\d", re.IGNORECASE)

_NEVER = datetime.max.replace(tzinfo=UTC)


class StepWatch:
    """Counts the lines since the newest step, in the order of the log.

    Args:
        before: Position of the last line that was read before.
        is_watched: Whether the spec announces steps.
        is_new_log: Whether the next line is the first one of another log.
    """

    def __init__(self, before: MetricsCursor, *, is_watched: bool = True, is_new_log: bool = False) -> None:
        self._since, self._last_step = before.since_step, before.last_step
        self._num_lines = before.since_step.num_lines
        self._began_at = None if is_new_log else before.since_step.began_at
        self._newest: deque[str] = deque(before.since_step.newest, maxlen=RECENT_LINES)
        self._is_watched = is_watched
        self._due_at = self._time_when_due()

    def add(self, line: LogLine) -> None:
        """Count a line without a step, unless it is the supervisor's."""
        if self._began_at is None:
            self.begin(line.logged_at)
        if is_own_line(line.text):
            return
        if line.logged_at >= self._due_at and (self._last_step is None or self._num_lines >= LEAST_LINES):
            self._report()
        self._num_lines += 1
        self._newest.append(line.text)
        if self._num_lines == LINES_BEFORE_WARNING and self._last_step is None:
            self._report()

    def found(self, line: LogLine, step: int | None) -> None:
        """Begin anew behind a line that shows a step."""
        longest = self._since.longest_seconds
        if self._began_at is not None:
            longest = max(longest, (line.logged_at - self._began_at).total_seconds())
        self._since = LinesSinceStep(longest_seconds=round(longest, 3))
        self._last_step = self._last_step if step is None else step
        self._num_lines = 0
        self._newest.clear()
        self.begin(line.logged_at)

    def begin(self, at: datetime | None) -> None:
        """Count the time from now on; None for the log of another job, whose next line is its first."""
        self._began_at = at
        self._due_at = self._time_when_due()

    def polled(self, now: datetime | None = None) -> LinesSinceStep:
        """The lines since the newest step, when all lines have been read. A silence before the first step is worth a
        warning, too; behind a step it may be a pause."""
        if now is not None and now >= self._due_at and self._last_step is None:
            self._report()
        return self._since.model_copy(
            update={"began_at": self._began_at, "num_lines": self._num_lines, "newest": tuple(self._shown(KEPT_LINES))}
        )

    def _time_when_due(self) -> datetime:
        if self._began_at is None or self._since.missing is not None or not self._is_watched:
            return _NEVER
        return self._began_at + max(PATIENCE, timedelta(seconds=TIMES_LONGER * self._since.longest_seconds))

    def _report(self) -> None:
        if self._since.missing is None and self._is_watched:
            missing = _missing(self._last_step, self._num_lines, self._shown(RECENT_LINES))
            self._since = self._since.model_copy(update={"missing": missing})
        self._due_at = _NEVER

    def _shown(self, most: int) -> list[str]:
        return list(_with_numbers(self._newest))[-most:]


def missing_at_end(cursor: MetricsCursor) -> StepsMissing | None:
    """The missing steps of a log that has ended; None if its last lines need no explanation.

    After a step the lines of an evaluation or of the program's end follow, and a program without steps may do
    something else than train. So lines that look like progress count, or many lines before a first step.
    """
    since = cursor.since_step
    if since.missing is not None:
        return since.missing
    found = _missing(cursor.last_step, since.num_lines, since.newest)
    alike = sum(_OF_PROGRESS.search(line) is not None for line in since.newest)
    if cursor.last_step is None:
        is_worth_it = since.num_lines >= LEAST_LINES or alike > 0 or found.proposal is not None
    else:
        is_worth_it = since.num_lines >= LEAST_LINES and 2 * alike > len(since.newest)
    return found if is_worth_it else None


def missing_steps_warning(progress: Literal["auto", "none"] | Format, missing: StepsMissing | None) -> str | None:
    """The sentences about missing steps; None without any, and for a spec that announces none."""
    if progress == "none" or missing is None:
        return None
    if isinstance(progress, Format) and progress.pattern and (problem := pattern_problem(progress.pattern)):
        return f"No step is read from the log: progress.pattern {problem}."
    return f"{_found_nothing(progress, missing)}{_quoted(missing)} {_what_to_do(progress, missing)}"


def _found_nothing(progress: Literal["auto", "none"] | Format, missing: StepsMissing) -> str:
    lines = "line" if missing.num_lines == 1 else f"{missing.num_lines:,} lines"  # behind a step there are more
    if missing.after_step is not None:
        return f"No step is read from the log after step {missing.after_step}, although {lines} have followed."
    if isinstance(progress, Format) and read_from_files(progress):
        return f"{named(progress)} has found no step by line {missing.num_lines:,} of rank 0's log."
    if isinstance(progress, Format):
        return f"{named(progress)} matches none of the first {lines} of rank 0's log."
    return f"No step was found in the first {lines} of rank 0's log."


def _quoted(missing: StepsMissing) -> str:
    if not missing.newest:
        return ""
    if len(missing.newest) == 1:
        return f" The last line with a number: '{missing.newest[0]}'."
    quoted = ", ".join(f"'{line}'" for line in missing.newest)
    return f" The last lines with a number: {quoted}."


def _what_to_do(progress: Literal["auto", "none"] | Format, missing: StepsMissing) -> str:
    if isinstance(progress, Format) and read_from_files(progress):
        return f"Check the folder that {named(progress)} names."
    if missing.proposal is not None:
        pattern = missing.proposal.replace("'", "''")
        return f"If these lines show its steps, put progress: {{pattern: '{pattern}'}} into the spec."
    rest = "" if missing.after_step is not None else ", or set progress: none if it has no steps"
    return f"Describe the program's lines with the spec's field progress{rest}."


def _missing(last_step: int | None, num_lines: int, shown: Sequence[str]) -> StepsMissing:
    newest = tuple(shown[-MOST_QUOTED:])
    return StepsMissing(after_step=last_step, num_lines=num_lines, newest=newest, proposal=proposed_pattern(shown))


def _with_numbers(lines: Iterable[str]) -> Iterable[str]:
    """The lines with a number that the program has printed. Of a bar that is written over, the newest state counts."""
    for line in lines:
        shown = without_colours(line.rstrip("\r\n").rpartition("\r")[2])[:LONGEST_QUOTED].strip()
        if _DIGIT.search(shown) and not is_relayed(line):
            yield "".join(letter if letter.isprintable() else " " for letter in shown)
