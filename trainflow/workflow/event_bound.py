"""Most events that a run's executions can have in their histories, by the limits of its spec.

Step Functions ends an execution at 25,000 events, and no Catch runs. The numbers of the texts of the state machines are
here, so that a run can be counted where these texts are not installed; tests/infrastructure/test_state_machines.py
compares them with the texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from trainflow.workflow.pauses import pause_seconds, watch_seconds

if TYPE_CHECKING:
    from trainflow.spec.run_spec import Limits

HISTORY_QUOTA = 25_000
"""Events of a Standard execution, hard (AWS Step Functions service quotas)."""

LONGEST_EXECUTION = timedelta(days=365)
"""Hard as well."""

LONGEST_CACHE_WAIT = timedelta(hours=6)
"""Longest wait for another run's compilation; BERT-large's takes a quarter of an hour. After it, a run compiles for
itself."""

POLL_EVENTS = 9
"""A poll of the run's own execution: a Task, the Choice after it and a Wait."""

WINDOW_EVENTS = 8
"""A window in the history of the run's own execution: a child that is waited for, and the Choice after it."""

WINDOW_POLLS = 500
"""Polls of a window."""

WINDOW_POLL_EVENTS = 43
"""A poll in the history of a window, on the longest way and with every retry."""

MAX_LOST_WINDOWS = 10
"""Windows of a run that may end without a result."""

LOST_WINDOW_EVENTS = 34
"""Such a window: a child with every retry, a Wait and the Choice after it."""

ATTEMPT_EVENTS = 71
"""A restart, from the deletion of one job to that of the next, without its waits."""

MAX_ATTEMPTS = 100
"""Attempts of a run, the first one included."""

ONCE_EVENTS = 200
"""States that a run enters once: more than there are."""


@dataclass(frozen=True, kw_only=True)
class EventBound:
    """The most events of a run, if it goes on for a year, which is the longest that an execution can."""

    quota: int
    events: int
    """Of the run's own execution: every attempt used, and every wait as long as the spec allows."""
    attempts: int
    """Attempts that were counted."""
    further_restarts: int
    """Restarts beyond these that would still fit."""
    window_polls: int
    window_hours: float
    """Time of a window's polls in the run's first days; later the pauses are longer."""
    window_events: int
    """Of a window, which is an execution of its own."""


def event_bound(limits: Limits) -> EventBound:
    """The bound for a run with these limits."""
    poll_seconds = limits.poll_seconds
    attempts = MAX_ATTEMPTS if limits.max_restarts > 0 else 1
    nodes = attempts * timedelta(minutes=limits.capacity_timeout_minutes, seconds=poll_seconds)
    events = sum(
        (
            3 * events_of_waiting(LONGEST_EXECUTION, poll_seconds=poll_seconds),  # preflight, staging, publishing
            events_of_waiting(LONGEST_CACHE_WAIT, poll_seconds=poll_seconds),
            events_of_waiting(min(nodes, LONGEST_EXECUTION), poll_seconds=poll_seconds),
            events_of_watching(LONGEST_EXECUTION, poll_seconds=poll_seconds),
            attempts * ATTEMPT_EVENTS,
            MAX_LOST_WINDOWS * LOST_WINDOW_EVENTS,
            ONCE_EVENTS,
        )
    )
    return EventBound(
        quota=HISTORY_QUOTA,
        events=events,
        attempts=attempts,
        further_restarts=max(0, HISTORY_QUOTA - events) // ATTEMPT_EVENTS,
        window_polls=WINDOW_POLLS,
        window_hours=round(WINDOW_POLLS * poll_seconds / 3600, 2),
        window_events=WINDOW_POLLS * WINDOW_POLL_EVENTS,
    )


def events_of_waiting(time: timedelta, *, poll_seconds: int) -> int:
    """Events of the polls of a wait."""
    waited, polls = 0, 0
    while waited < time.total_seconds():
        waited, polls = waited + pause_seconds(waited, shortest=poll_seconds), polls + 1
    return polls * POLL_EVENTS


def events_of_watching(time: timedelta, *, poll_seconds: int) -> int:
    """Number of events while a job is watched."""
    age, windows = timedelta(0), 0
    while age < time:
        age, windows = (
            age + WINDOW_POLLS * timedelta(seconds=watch_seconds(age, shortest=poll_seconds)),
            windows + 1,
        )
    return windows * WINDOW_EVENTS
