"""Waiting for what other processes and threads bring about."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], *, seconds: float) -> None:
    """Return once the condition holds; fail the test when it does not within this many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds} s"
        time.sleep(0.05)
