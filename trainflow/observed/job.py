"""The status of a job, in the same words for every backend."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainflow.workflow.run import JobPhase

DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Reason of a failed job or pod that was ended because it ran too long; the word is Kubernetes' own."""

NO_RECORD = "NoRecord"
"""Reason of a failed job that left no trace, not even how it ended. Unless it has trained before, its nodes lack
something, and would lack it again."""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as a whole: its cost to read and its size do not grow with the number of nodes."""

    phase: JobPhase | None
    """None when the job has failed; pending until all pods of the gang run."""
    failure_reason: str | None = None
    failure_message: str | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    """Time of its start, as far as its kind reports it; None while it is pending."""
