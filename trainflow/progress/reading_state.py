"""State of the reading of one log, with a pattern for lines that look like progress and are not read."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainflow.progress.ansi import without_colours
from trainflow.spec.line_pattern import pattern_problem

MOST_UNMATCHED = 3
"""Most lines without a step that `ReadingState` shows."""

LONGEST_UNMATCHED = 200
"""Characters of a line that `ReadingState` shows."""

RECENT_LINES = 50
"""Newest lines without a step that are kept."""

_DIGIT = re.compile(r"\d")
_WHOLE = re.compile(r"(?<![\w.:/,-])\d{1,15}(?:,\d{3})*(?![\w:-]|[./,]\d)")
_LOSS = re.compile(r"(loss\w{0,20}[^\w.+-]{1,10})[-+]?(?:\d|\.\d|nan|inf)", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"[A-Za-z_]+[^A-Za-z0-9]{0,10}$")


@dataclass(frozen=True)
class ReadingState:
    """Whether steps are being read now, and the lines that were not read as steps."""

    steps_read: int
    """Steps and reports that were found, repeated ones included."""
    lines_seen: int
    """Lines that the reader has read."""
    lines_since_step: int
    """Lines since the newest step; all lines if none has shown a step."""
    unmatched: tuple[str, ...]
    """The last lines with digits since the newest step, in the order of the log."""
    proposal: str | None
    """A pattern for `progress.pattern` that reads lines like the last of these; None if no number rises in them."""


class LinesWithoutStep:
    """Counts the lines since the newest step, and keeps the last ones."""

    def __init__(self) -> None:
        self.count = 0
        self._recent: deque[str] = deque(maxlen=RECENT_LINES)

    def add(self, text: str) -> None:
        """Remember a line without a step."""
        self.count += 1
        self._recent.append(text)

    def clear(self) -> None:
        """Forget all lines: a step was read."""
        self.count = 0
        self._recent.clear()

    def with_digits(self) -> list[str]:
        """The newest lines that contain a digit. Of a bar that is written over, the newest state counts."""
        shown = (_last_state(text) for text in self._recent)
        return [text for text in shown if _DIGIT.search(text)]


def proposed_pattern(lines: Sequence[str]) -> str | None:
    """A pattern that finds the newest rising number of these lines as the step; None without one."""
    for newest in reversed(lines):
        alike = [line for line in lines if _skeleton(line) == _skeleton(newest)]
        column = _rising_column([[_value(number) for number in _WHOLE.findall(line)] for line in alike])
        if column is None:
            continue
        pattern = _pattern(newest, list(_WHOLE.finditer(newest))[column])
        if pattern is not None:
            return pattern
    return None


def _last_state(text: str) -> str:
    return without_colours(text.rstrip("\r\n").rpartition("\r")[2])[:LONGEST_UNMATCHED]


def _skeleton(line: str) -> str:
    return re.sub(r"[\d.,\s]+", "#", line)


def _value(digits: str) -> int:
    return int(digits.replace(",", ""))


def _rising_column(rows: Sequence[Sequence[int]]) -> int | None:
    """The first column whose numbers rise from each row to the next."""
    if len(rows) < 2 or len({len(row) for row in rows}) != 1:
        return None
    columns: Iterable[Sequence[int]] = zip(*rows, strict=True)
    return next((i for i, column in enumerate(columns) if all(a < b for a, b in pairwise(column))), None)


def _pattern(line: str, step: re.Match[str]) -> str | None:
    before = _WORD_BEFORE.search(line[max(0, step.start() - 40) : step.start()])
    prefix = _escaped(before[0]) if before else "^" + _escaped(line[: step.start()]) if step.start() < 3 else None
    if prefix is None:
        return None
    pattern = prefix + r"(?P<step>\d[\d,]*)"
    if loss := _LOSS.search(line, step.end()):
        pattern += ".*?" + _escaped(loss[1]) + r"(?P<loss>[-+\w.]+)"
    return pattern if pattern_problem(pattern) is None else None


def _escaped(text: str) -> str:
    return re.sub(r"(?:\\?\s)+", lambda _: r"\s+", re.escape(text))
