"""A pattern for lines that look like progress and are not read; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from trainflow.spec.line_pattern import pattern_problem

_WHOLE = re.compile(r"(?<![\w.:/,-])\d{1,15}(?:,\d{3})*(?![\w:-]|[./,]\d)")
_LOSS = re.compile(r"(loss\w{0,20}[^\w.+-]{1,10})[-+]?(?:\d|\.\d|nan|inf)", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"[A-Za-z_]+[^A-Za-z0-9]{0,10}$")


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
