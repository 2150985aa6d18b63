"""Lines in the log of a running program by which a library says that it has given up waiting for other processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trainflow.failures.log_lines import evidence_lines
from trainflow.failures.table import Rule, failure_table

MAX_QUOTATION = 300
"""Characters of a line that are kept: they travel through the state machine with every poll."""

CLUES = ("timeout", "timed out", "collectives", "unresponsive")
"""Words of which each such line has one, in lower case. A caller that reads millions of lines looks for them itself,
which costs less than a call."""


@dataclass(frozen=True)
class HangLine:
    """A line that says that the program hangs."""

    error: str
    """Name of the error in which the job ends if it does not go on."""
    text: str
    """The line's beginning, without its rank's prefix."""


# Decision 64: a hang that the log reports ends the job within minutes.
def hang_line(text: str) -> HangLine | None:
    """What a log line says of a hang; None for other lines, and for warnings, after which programs go on."""
    searched = text.lower()
    if not any(clue in searched for clue in CLUES):
        return None
    if not any(expression.search(searched) for rule in _rules() for expression in rule.log):
        return None
    for line in evidence_lines([text]):
        for rule in _rules():
            if not line.weak and any(expression.search(line.searched) for expression in rule.log):
                return HangLine(rule.error.name, line.text[:MAX_QUOTATION])
    return None


@cache
def _rules() -> tuple[Rule, ...]:
    return tuple(rule for rule in failure_table().rules if rule.hang)
