"""Lines of launchers and libraries in the log of a program: reports on processes, calls, warnings about threads.

They surround the program's own last words, and a program's author cannot change them.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from trainflow.failures.blocks import HEADING, LINK
from trainflow.failures.log_lines import RANK_PREFIX

REPORT = "report of torchrun"
"""Forty lines of torchrun's own traceback and its table of ranks, behind the program's lines."""

FRAMES = "frames of "
"""Beginning of the description of a launcher's calls in a traceback."""

MAX_LENGTH = 4000
"""Characters of a line that are searched."""

LONGEST = 200
"""Lines of a launcher's traceback."""

_TRACEBACK = re.compile(r"^\s*Traceback \(most recent call last\):")
_CODE = "   "
"""Beginning of a line of code below a call: the prefix of a rank may have taken one of its four blanks."""

_FRAME = re.compile(r'^\s+File "(?P<path>[^"]+)", line \d+')


@dataclass(frozen=True)
class _Expressions:
    """The regular expressions of `noise.toml`."""

    report: re.Pattern[str]
    launchers: tuple[tuple[str, re.Pattern[str]], ...]
    launcher_errors: re.Pattern[str]
    signal_errors: re.Pattern[str]
    lines: tuple[tuple[str, re.Pattern[str]], ...]


@cache
def _expressions() -> _Expressions:
    document = tomllib.loads((pkgutil.get_data(__package__, "noise.toml") or b"").decode())
    return _Expressions(
        report=_any(document["report"]),
        launchers=_named(document["launchers"]),
        launcher_errors=_any(document["launcher_errors"]),
        signal_errors=_any(document["signal_errors"]),
        lines=_named(document["lines"]),
    )


def _named(expressions: Mapping[str, Sequence[str]]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, _any(each)) for name, each in expressions.items())


def _first(named: Iterable[tuple[str, re.Pattern[str]]], text: str) -> str:
    return next((name for name, expression in named if expression.search(text)), "")


def _any(expressions: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{expression})" for expression in expressions))


def kinds(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line behind the description of what it is; the description of the program's own lines is empty."""
    known = _expressions()
    lines = [(text, RANK_PREFIX.sub("", text[:MAX_LENGTH], count=1)) for text in texts]
    kind, ended_by_signals = "", _ended_by_signals([bare for _, bare in lines])
    for at, (text, bare) in enumerate(lines):
        if kind == REPORT or known.report.search(bare):
            kind = REPORT
        elif at in ended_by_signals:
            kind = f"{FRAMES}torchrun"
        elif frame := _FRAME.match(bare):
            kind = _frames(frame["path"])
        elif _TRACEBACK.match(bare):
            kind = _whole_traceback([below for _, below in lines[at + 1 : at + LONGEST]])
        elif not kind.startswith(FRAMES) or not (bare.startswith(_CODE) or known.launcher_errors.search(bare)):
            kind = _first(known.lines, bare or text)  # `[0]:` is the prefix of a rank, and a line of a table of ranks
        yield kind, text


def without_noise(texts: Sequence[str]) -> list[str]:
    """The program's own lines."""
    return [text for kind, text in kinds(texts) if not kind]


def _frames(path: str) -> str:
    launcher = _first(_expressions().launchers, path)
    return launcher and FRAMES + launcher


def _ended_by_signals(lines: Sequence[str]) -> set[int]:
    """Places of the lines of tracebacks that a signal to a launcher caused; their beginning may be cut."""
    known, found = _expressions(), set[int]()
    for at, line in enumerate(lines):
        if not known.signal_errors.search(line):
            continue
        begin = at
        while begin and lines[begin - 1][:1].isspace():
            begin -= 1
        if begin and begin < at and _TRACEBACK.match(lines[begin - 1]):
            begin -= 1
        if begin < at:
            found.update(range(_begin_of_chain(lines, begin), at + 1))
    return found


def _begin_of_chain(lines: Sequence[str], begin: int) -> int:
    """Place of the first line of the exceptions that the launcher was handling when the signal came.

    They are its own, as the signal's exception is: both were raised in its process.
    """
    at = begin
    while at and not lines[at - 1].strip():
        at -= 1
    if not at or not LINK.search(lines[at - 1]):
        return begin
    at -= 1
    while at and not HEADING.search(lines[at]):
        at -= 1
    return _begin_of_chain(lines, at)


def _whole_traceback(below: Iterable[str]) -> str:
    """The description of a traceback with calls of launchers only, and their report on a process at its end."""
    kind = ""
    for text in below:
        if frame := _FRAME.match(text):
            kind = _frames(frame["path"])
            if not kind:
                return ""
        elif not text.startswith(_CODE):
            return kind if _expressions().launcher_errors.search(text) else ""
    return ""
