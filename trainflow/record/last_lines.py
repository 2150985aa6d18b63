"""The last lines of a program, with those of launchers and libraries separated from the program's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from trainflow.failures.noise import FRAMES, kinds
from trainflow.record.wording import count

_FRAME = re.compile(r'^(\[[^\]]*\]:)?\s+File "')


@dataclass(frozen=True)
class Part:
    """Consecutive lines."""

    text: str
    folded: str = ""
    """Description of lines that a reader rarely needs: `4 frames of torchrun`; empty for the program's lines."""


def parts(text: str) -> list[Part]:
    """The lines in their order, without any loss: the program's, and those of launchers and libraries."""
    found = []
    for kind, group in groupby(kinds(text.split("\n")), key=lambda told: told[0]):
        lines = [line for _, line in group]
        found.append(Part("\n".join(lines), _summary(kind, lines)))
    return found


def last_own_line(text: str) -> str:
    """The last line of the program's that is not blank, which is the error of a traceback; else the last line."""
    own = [line for part in parts(text) if not part.folded for line in part.text.splitlines()]
    told = [line.strip() for line in own if line.strip()] or text.strip().splitlines()
    return told[-1] if told else ""


def own_lines(lines: Iterable[str]) -> list[str]:
    """The lines with each block of others as one, which says what was there: torchrun's report is longer than a
    terminal, and the program's error stands above it."""
    found: list[str] = []
    for part in parts("\n".join(lines)):
        found += [f"({part.folded})"] if part.folded else part.text.split("\n")
    return found


def _summary(kind: str, lines: Iterable[str]) -> str:
    if not kind.startswith(FRAMES):
        return kind
    frames = sum(_FRAME.match(line) is not None for line in lines)
    return f"{count(frames, 'frame')} of {kind.removeprefix(FRAMES)}"
