"""All processes that this one has started, and those that they have started, on Linux."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from trainer.runtime.process_status import ENDED, children, read_status

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphans below this process become its children, so that none is lost when a launcher is killed."""

POLL_SECONDS = 0.05

KILL_SECONDS = 10.0
"""Longest time between SIGKILL and the end: a process that waits for its driver in the kernel cannot be killed."""


def adopt_orphans() -> bool:
    """Become the parent of all orphans below this process; False where that is not possible."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def running() -> list[int]:
    """Process ids of all descendants that have not ended."""
    return [process for process in _below(os.getpid()) if _is_alive(process)]


def end(*, grace_seconds: float) -> bool:
    """End all descendants; whether all have ended.

    Args:
        grace_seconds: Time between SIGTERM and SIGKILL.
    """
    send(running(), signal.SIGTERM)
    if _have_ended(grace_seconds):
        return True
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        send(running(), signal.SIGKILL)  # again: one of them may have started another meanwhile
        if _have_ended(4 * POLL_SECONDS):
            return True
    return False


def _have_ended(seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while running():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def send(processes: Iterable[int], number: int) -> None:
    """Send a signal to processes; those that have ended meanwhile get none."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _below(process: int) -> Iterator[int]:
    for child in children(process):
        yield child
        yield from _below(child)


def _is_alive(process: int) -> bool:
    try:
        return read_status(process).state not in ENDED
    except (OSError, ValueError, IndexError):
        return False
