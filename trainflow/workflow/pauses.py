"""Pauses between two polls of the workflow, which grow with the time that it has waited.

An execution fails at 25,000 events of its history, and no Catch runs; a poll costs nine events.
tests/infrastructure/test_state_machines.py counts the events of the longest run.
"""

from __future__ import annotations

from datetime import timedelta

PART = 20
"""A pause is at most this part (1/20) of the time waited. So a wait is at most a twentieth longer than necessary, and a
year takes 250 polls."""


# Decision 20: a poll costs nine history events, so pauses grow with the time waited.
def pause_seconds(waited_seconds: float, *, shortest: int, longest: float | None = None) -> int:
    """Seconds until the next poll of a condition that the run waits for.

    Args:
        waited_seconds: Time waited so far. For nodes: in all waits of the run, which may wait again after a restart.
        shortest: The spec's `limits.poll_seconds`.
        longest: Seconds until the wait times out; None for a wait without a limit.
    """
    part = waited_seconds / PART
    return round(max(shortest, part if longest is None else min(part, longest)))


SECONDS_PER_DAY = 2
"""Growth of the pause between two polls of a job, for each day of the run's age."""

LONGEST_WATCH_SECONDS = 600
"""Longest of these pauses: a window of 500 polls has a time limit of a week."""


# Decision 107: polls are frequent while they are cheap, and a year of them fits into a history.
def watch_seconds(age: timedelta, *, shortest: int) -> int:
    """Seconds until the next poll of a job: two per day of the run's age, ten minutes at most, and at least the spec's.

    Args:
        age: Age of the run, not of the job.
        shortest: The spec's `limits.poll_seconds`.
    """
    return max(shortest, min(SECONDS_PER_DAY * age.days, LONGEST_WATCH_SECONDS))
