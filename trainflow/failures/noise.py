"""Lines of launchers and libraries in the log of a program: reports on processes, calls, warnings about threads.

They surround the program's own last words, and a program's author cannot change them.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from trainflow.failures.log_lines import RANK_PREFIX

REPORT = "report of torchrun"
"""Forty lines of torchrun's own traceback and its table of ranks, behind the program's lines."""

CALLS = "of the launcher"
"""Calls of launchers and of `python -m` in a traceback."""

LONGEST = 200
"""Lines of a launcher's traceback."""

_TRACEBACK = re.compile(r"^\s*Traceback \(most recent call last\):")
_FRAME = re.compile(r'^\s+File "(?P<path>[^"]+)", line \d+')


@dataclass(frozen=True)
class _Expressions:
    """The regular expressions of `noise.toml`."""

    report: re.Pattern[str]
    launcher_files: re.Pattern[str]
    launcher_errors: re.Pattern[str]
    lines: tuple[tuple[str, re.Pattern[str]], ...]


@cache
def _expressions() -> _Expressions:
    document = tomllib.loads((pkgutil.get_data(__package__, "noise.toml") or b"").decode())
    return _Expressions(
        report=_any(document["report"]),
        launcher_files=_any(document["launcher_files"]),
        launcher_errors=_any(document["launcher_errors"]),
        lines=tuple((name, _any(expressions)) for name, expressions in document["lines"].items()),
    )


def _any(expressions: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{expression})" for expression in expressions))


def kinds(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line behind the description of what it is; the description of the program's own lines is empty."""
    known = _expressions()
    lines = [(text, RANK_PREFIX.sub("", text, count=1)) for text in texts]
    kind = ""
    for at, (text, bare) in enumerate(lines):
        if kind == REPORT or known.report.search(bare):
            kind = REPORT
        elif frame := _FRAME.match(bare):
            kind = CALLS if known.launcher_files.search(frame["path"]) else ""
        elif _TRACEBACK.match(bare):
            kind = CALLS if _is_of_launcher([below for _, below in lines[at + 1 : at + LONGEST]]) else ""
        elif kind != CALLS or not (bare.startswith("    ") or known.launcher_errors.search(bare)):
            kind = next((name for name, expression in known.lines if expression.search(bare)), "")
        yield kind, text


def without_noise(texts: Sequence[str]) -> list[str]:
    """The program's own lines."""
    return [text for kind, text in kinds(texts) if not kind]


def _is_of_launcher(below: Iterable[str]) -> bool:
    """Whether a traceback has calls of launchers only, and ends with their report on a process."""
    known = _expressions()
    for text in below:
        if frame := _FRAME.match(text):
            if not known.launcher_files.search(frame["path"]):
                return False
        elif not text.startswith("    "):
            return known.launcher_errors.search(text) is not None
    return False
