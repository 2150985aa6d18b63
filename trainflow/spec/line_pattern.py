"""Regular expressions of users for the lines of a program: which of them are refused, and their search.

Anybody who may upload a run spec chooses the expression, so it is never executed to judge it. Python's parser reads it,
RE2 searches: its time is at most proportional to the size of the expression times the length of the line, and both are
limited. An expression means what it means in Python's `re` with the flag ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping
from re import _parser  # type: ignore[attr-defined]  # Python's own parser of patterns
from re import error as NotAnExpression
from typing import Any

from trainflow.spec.linear_syntax import Unsupported, translated
from trainflow.spec.sentences import shortened

LONGEST_PIECE = 1000
"""Characters of a line that a pattern is matched against. With `MAX_INSTRUCTIONS` it bounds the work for one line."""

MAX_INSTRUCTIONS = 500
"""Largest program of RE2 for a pattern. An expression with ten groups has about 200. 160 groups in a row that match
anything have 495, and take 24 ms of processor time for a line of `LONGEST_PIECE` characters (decision 78)."""

MAX_MEMORY = 1 << 20
"""Bytes that RE2 may use for a pattern, while it compiles it and for the states of searches."""


class LinePattern:
    """A pattern that can be searched in any line, in bounded time.

    Raises:
        PatternRefused: If the pattern is refused; `pattern_problem` returns the reason.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._expression, self._names = translated(_parser.parse(pattern))
        except (NotAnExpression, RecursionError, OverflowError) as error:
            raise PatternRefused(f"is not a regular expression of Python ({error})") from None
        except Unsupported as unsupported:
            raise PatternRefused(str(unsupported)) from None
        if "step" not in self._names:
            raise PatternRefused("has no group named step; write (?P<step>\\d+) where the number of the step is")
        self._compiled = _compiled(self._expression)

    def search(self, line: str) -> Mapping[str, str] | None:
        """The texts of the named groups that the first match in a line has; None without a match."""
        # A log may hold bytes that are no UTF-8; each of them is one character here, and RE2 takes text.
        text = line.encode("utf-8", "replace").decode()
        found = self._compiled.search(text)
        if found is None:
            return None
        groups = zip(self._names, found.groups(), strict=True)
        return {name: value for name, value in groups if value is not None}


class PatternRefused(ValueError):
    """A pattern cannot be searched; the message continues the name of the field."""


def pattern_problem(pattern: str) -> str | None:
    """The reason why a pattern is refused, as the end of a sentence; None if it can be searched."""
    try:
        LinePattern(pattern)
    except PatternRefused as refused:
        return f"{refused}, got {shortened(repr(pattern))}"
    return None


def _compiled(expression: str) -> Any:
    """The expression as a program of RE2, which is imported when it is needed: most commands search no pattern."""
    import re2

    options = re2.Options()
    options.log_errors, options.max_mem = False, MAX_MEMORY
    try:
        compiled = re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        compiled = None
    if compiled is None or compiled.programsize > MAX_INSTRUCTIONS:
        raise PatternRefused(
            "is too large, because repeats with a number such as {1,30} count as often as they repeat; write + or * in "
            "place of the number, or leave parts out that the line does not need"
        )
    return compiled
