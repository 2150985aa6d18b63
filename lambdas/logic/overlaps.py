"""Decides about a scheduled run while the schedule's previous one is active."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from lambdas.logic.run_requests import Scheduled
from trainflow.workflow.run_status import RunStatus
from trainflow.workflow.run_table import ScheduleRow

LOST_AFTER = timedelta(minutes=30)
"""A request that waits says so every minute. One that has not for so long has been lost, and blocks no other."""

STARTS_WITHIN = timedelta(minutes=5)
"""Time for a function that has noted a run in the table to start its execution, with the retries of the queue."""


class Turn(StrEnum):
    """Decisions about a request."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"


def is_going(row: ScheduleRow, status: RunStatus | None, *, now: datetime) -> bool:
    """Whether a schedule's newest run is running, or is just being started.

    Args:
        row: What is known of the schedule.
        status: Status of the run's execution; None without an execution.
        now: Current time.
    """
    return status is RunStatus.RUNNING or (status is None and now - row.seen_at < STARTS_WITHIN)


def decide_turn(request: Scheduled, row: ScheduleRow | None, *, is_going: bool, now: datetime) -> Turn:
    """Decide about a request.

    Args:
        request: The request.
        row: What is known of the schedule; None before its first run.
        is_going: Whether the schedule's newest run is going, and is another one than the requested.
        now: Current time.
    """
    waiting = row.waiting if row and now - row.seen_at < LOST_AFTER else None
    if waiting not in (None, request.scheduled_at):
        return Turn.SKIP  # at most one waits
    if not is_going:
        return Turn.START
    return Turn.WAIT if request.overlap == "queue" else Turn.SKIP
