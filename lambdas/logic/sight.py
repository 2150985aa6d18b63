"""How long a job is watched that cannot be polled: observing a training and training are two things."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lambdas.logic.run_limits import longest_job
from trainflow.models.run import Run
from trainflow.models.run_spec import Limits

MARGIN = timedelta(minutes=15)
"""Time in which a job that ran into its time limit ends: grace periods, and clocks that differ."""


def blind_after(limits: Limits, *, now: datetime) -> datetime:
    """When the owner is told, unless the job is polled once more until then."""
    return now + timedelta(minutes=limits.blind_minutes)


def ends_by(run: Run, *, submitted_at: datetime) -> datetime:
    """When a job has ended in any case: its pods start within the gang's time limit and have one of their own."""
    return submitted_at + timedelta(minutes=run.spec.limits.gang_timeout_minutes) + longest_job(run) + MARGIN


def timestamp(moment: datetime) -> str:
    """A time as Step Functions compares it with others (Amazon States Language, TimestampGreaterThanPath)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
