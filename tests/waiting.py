"""Waiting for what other processes and threads bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds after which something that a test waits for hangs. A busy machine may be thirty times as slow as
an idle one: no test has a shorter limit of its own, and none measures time by it."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail the test when it does not within `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {PATIENCE} s"
        time.sleep(0.05)
