"""Times and deadlines of a job that cannot be polled. The job itself continues meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lambdas.logic.run_limits import first_bound, longest_job
from trainflow.observed.job import JobStatus
from trainflow.spec.run_spec import Limits
from trainflow.workflow.run import MetricsCursor, Run, Spending

MARGIN = timedelta(minutes=15)
"""Time for a job that ran into its time limit to end: grace periods, and clocks that differ."""


def report_unreachable_at(limits: Limits, *, now: datetime) -> datetime:
    """Time to report that the job cannot be polled, unless a later poll succeeds."""
    return now + timedelta(minutes=limits.blind_minutes)


def report_unreadable_at(limits: Limits, status: JobStatus, progress: MetricsCursor, *, now: datetime) -> datetime:
    """Time to report that the log cannot be read, unless it is read before.

    It counts from the newest reading, or from the start of a job whose log has not been read yet, so it does not move
    until the log is read.
    """
    last_read = max(filter(None, (progress.read_at, status.started_at)), default=now)
    return last_read + timedelta(minutes=limits.blind_minutes)


@dataclass(frozen=True, kw_only=True)
class UnreachableDeadline:
    """Latest end of a run whose job cannot be polled."""

    at: datetime
    limit: dict[str, str] | None
    """Name and message of the error of a run that reaches one of its limits then; None if its job has ended by itself,
    and what prevents the polls is the error."""


def unreachable_deadline(run: Run, spending: Spending, *, submitted_at: datetime) -> UnreachableDeadline:
    """Latest end of a run whose job cannot be polled: the job has ended by itself, or the run has reached a limit.

    A job has ended after the time limit of the gang, for the start of its pods, and its own. Limits of the run hold
    without polls: the cost of its nodes does not change while a job runs.
    """
    gang_timeout = timedelta(minutes=run.spec.limits.gang_timeout_minutes)
    job_ended = submitted_at + gang_timeout + longest_job(run, spending, submitted_at=submitted_at) + MARGIN
    bound = first_bound(run, spending)
    if bound is None or bound.at > job_ended:
        return UnreachableDeadline(at=job_ended, limit=None)
    reached = bound.limit or "the end of its nodes"
    message = f"The run reached {reached} at {bound.at:%Y-%m-%d %H:%M} UTC, when its job could not be polled."
    return UnreachableDeadline(at=bound.at, limit={"Error": bound.error.__name__, "Cause": message})


LONG_RUN = timedelta(hours=6)
"""A job that ran so long counts as progress if its steps and checkpoints are unknown. Repeated faults occur at the
start, in the first steps, or with the first checkpoint or evaluation. A training on 1,024 GPUs was interrupted every
7.5 hours (OPT-175B; G. Lockwood, "Job reliability", glennklockwood.com/garden/job-reliability, 11/2026), and smaller
gangs less often."""


def long_run_ends(limits: Limits, *, submitted_at: datetime) -> datetime:
    """Output after this time proves that the job ran for `LONG_RUN`.

    Its pods were running by the end of the gang's time limit, or it has failed as GangIncomplete. A job that hangs is
    ended after `limits.stall_minutes`, so its output until then does not prove a long run.
    """
    return submitted_at + timedelta(minutes=limits.gang_timeout_minutes + limits.stall_minutes) + LONG_RUN


def timestamp(moment: datetime) -> str:
    """A time as Step Functions compares it with others (Amazon States Language, TimestampGreaterThanPath)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
