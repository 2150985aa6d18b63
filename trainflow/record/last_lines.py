"""The last lines of a program under torchrun, with torchrun's own lines separated from the program's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

REPORT = re.compile(
    r"torch/distributed/elastic/.*failed \(exitcode: |^W\d{4} .*torch/distributed/elastic/.*Sending process "
)
"""Beginning of torchrun's report: some forty lines of its own traceback behind the program's."""

_TRACEBACK = re.compile(r"^(\[[^\]]*\]:)?\s*Traceback \(most recent call last\):")
_FRAME = re.compile(r'^(\[[^\]]*\]:)?\s+File "(?P<path>[^"]+)", line \d+')
_LAUNCHER = re.compile(r"/torch/distributed/(run\.py|launcher/|elastic/)|/bin/torchrun$|^<frozen runpy>$|/runpy\.py$")
"""Files of torchrun and of `python -m`, which a program's author cannot change."""


@dataclass(frozen=True)
class Part:
    """Consecutive lines."""

    text: str
    folded: str = ""
    """Description of lines that a reader rarely needs: `4 frames of torchrun`; empty for the program's lines."""


def parts(text: str) -> list[Part]:
    """The lines in their order, without any loss: the program's, torchrun's frames, and torchrun's report."""
    found = []
    for kind, group in groupby(_told_apart(text.split("\n")), key=lambda told: told[0]):
        lines = [line for _, line in group]
        found.append(Part("\n".join(lines), _summary(kind, lines)))
    return found


def last_own_line(text: str) -> str:
    """The last line of the program's that is not blank, which is the error of a traceback; else the last line."""
    own = [line for part in parts(text) if not part.folded for line in part.text.splitlines()]
    told = [line.strip() for line in own if line.strip()] or text.strip().splitlines()
    return told[-1] if told else ""


def own_lines(lines: Iterable[str]) -> list[str]:
    """The lines with each block of torchrun's as one, which says what was there: its report is longer than a terminal,
    and the program's error stands above it."""
    found: list[str] = []
    for part in parts("\n".join(lines)):
        found += [f"({part.folded})"] if part.folded else part.text.split("\n")
    return found


def _told_apart(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    kind = ""
    for line in lines:
        if kind == "report" or REPORT.search(line):
            kind = "report"
        elif frame := _FRAME.match(line):
            kind = "frames" if _LAUNCHER.search(frame["path"]) else ""
        elif _TRACEBACK.match(line) or not _is_indented(line):
            kind = ""
        yield kind, line


def _is_indented(line: str) -> bool:
    return line.partition("]:")[2].startswith("    ") if line.startswith("[") else line.startswith("    ")


def _summary(kind: str, lines: Iterable[str]) -> str:
    if kind == "report":
        return "report of torchrun"
    if not kind:
        return ""
    frames = sum(_FRAME.match(line) is not None for line in lines)
    return f"{frames} {'frame' if frames == 1 else 'frames'} of torchrun"
