"""How long the workflow waits between two looks: the longer it has, the longer it may.

An execution ends for good, and without a word, at 25,000 events of its history, and a look costs nine of them.
tests/infrastructure/test_state_machines.py counts what the longest run can cost.
"""

from __future__ import annotations

from datetime import timedelta

PART = 20
"""Of the time waited: nobody waits more than this part longer than they had to, and the looks of a year are 250."""


def pause_seconds(waited_seconds: float, *, shortest: int, longest: float | None = None) -> int:
    """Until the next look at something that is waited for.

    Args:
        waited_seconds: So far. For nodes: in all waits of the run, for it may wait anew after every restart.
        shortest: The spec's `limits.poll_seconds`.
        longest: Until the wait is given up anyway; None if it is not.
    """
    part = waited_seconds / PART
    return round(max(shortest, part if longest is None else min(part, longest)))


def watch_seconds(age: timedelta, *, shortest: int) -> int:
    """Until the next look at a job: a second for every day of the run, once these are more than the spec's seconds.

    Args:
        age: Of the run, whatever the job's.
        shortest: The spec's `limits.poll_seconds`.
    """
    return max(shortest, age.days)
