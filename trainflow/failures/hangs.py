"""Log lines of a running program whose library has given up waiting for other processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trainflow.failures.log_lines import evidence_lines
from trainflow.failures.table import Rule, failure_table

MAX_QUOTATION = 300
"""Characters of a line that are kept: they travel through the state machine with every poll."""

CLUES = ("timeout", "timed out", "collectives", "unresponsive")
"""Words in lower case; each such line contains one. A caller that reads millions of lines searches for them itself,
which costs less than a call."""


@dataclass(frozen=True)
class HangLine:
    """A line that says that the program hangs."""

    error: str
    """Name of the job's error if it does not continue."""
    text: str
    """The line's beginning, without its rank's prefix."""


# Decision 64: a hang that the log reports ends the job within minutes.
def hang_line(text: str) -> HangLine | None:
    """The hang that a log line reports; None for other lines, and for warnings of programs that continue."""
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
