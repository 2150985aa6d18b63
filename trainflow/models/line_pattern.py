"""Regular expressions for the lines of a program: which of them are refused, and why."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]  # Python's own parser of patterns
from typing import Any

LONGEST_PIECE = 1000
"""Characters of a line in which a pattern is searched: a search takes more than linear time."""

SLOWEST_SECONDS = 0.02
"""CPU time that a pattern may take on a line of that length; a harmless one takes less than a hundredth of it."""

_REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}


def pattern_problem(pattern: str) -> str | None:
    """What is wrong in a pattern itself, as the end of a sentence; None if it can be searched for."""
    try:
        groups, parsed = re.compile(pattern).groupindex, _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression of Python ({error}), got {pattern!r}"
    if "step" not in groups:
        return f"has no group named step; write (?P<step>\\d+) where the number of the step is, got {pattern!r}"
    if _repeats_what_varies(parsed):
        return (
            "repeats a part that itself repeats or has a choice, such as (a+)+ or (a|b)*, which can take for ever on a "
            f"long line; write it without the outer repeat, got {pattern!r}"
        )
    return None


def is_slow(pattern: str) -> bool:
    """Whether a pattern takes long on monotonous lines.

    It is measured, so the answer depends on the machine: only a new spec is judged by it, never a run that goes on.
    Lines grow by a quarter: where the time is a power of the length, that shows long before the search takes seconds.

    Args:
        pattern: A pattern without a `pattern_problem`.
    """
    compiled, parsed = re.compile(pattern), _parser.parse(pattern)
    literals = {chr(argument) for operation, argument in _operations(parsed) if operation is _constants.LITERAL}
    for character in {"a", "0", " ", ".", *literals}:
        for text in (character, f"{character} ", f"{character}=0 "):
            length = 25
            while length <= LONGEST_PIECE:
                line = (text * length)[:length]
                if all(_seconds(compiled, line) > SLOWEST_SECONDS for _ in range(2)):
                    return True
                length += max(1, length // 4)
    return False


def _repeats_what_varies(parsed: Any) -> bool:
    """Whether a repeat contains a choice or another repeat of no fixed number: the cause of exponential time."""
    for operation, argument in parsed:
        if operation in _REPEATS:
            _, most, body = argument
            if most > 1 and any(_varies(*each) for each in _operations(body)):
                return True
        if any(_repeats_what_varies(part) for part in _parts(argument)):
            return True
    return False


def _varies(operation: Any, argument: Any) -> bool:
    if operation in _REPEATS:
        return bool(argument[0] != argument[1])
    return bool(operation is _constants.BRANCH)


def _operations(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """Every operation of a part of a pattern, those inside groups and repeats included."""
    for operation, argument in parsed:
        yield operation, argument
        for part in _parts(argument):
            yield from _operations(part)


def _parts(argument: Any) -> Iterator[Any]:
    """The parts of a pattern that are inside an operation's argument."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _parts(each)


def _seconds(compiled: re.Pattern[str], line: str) -> float:
    begin = time.thread_time()
    compiled.search(line)
    return time.thread_time() - begin
