"""Waiting in tests: for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], *, seconds: float = 10.0) -> None:
    """Returns as soon as the condition holds; fails when it does not in time.

    A condition that raises `OSError` does not hold yet: the file that it reads is not there before somebody writes it.
    """
    deadline = time.monotonic() + seconds
    while (seen := _holds(condition)) is not True:
        assert time.monotonic() < deadline, f"it did not happen in time: {seen or 'the condition does not hold'}"
        time.sleep(0.005)


def _holds(condition: Callable[[], object]) -> bool | OSError:
    try:
        return bool(condition())
    except OSError as unread:
        return unread
