"""Common parts of reading a job's status from the kinds of Kubernetes objects.

A job is pending until all pods of its gang run. Pods that have ended count as running: they end one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainflow.observed.containers import program_exit_code
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobPhase, JobRef


def ended_by_condition(status: Mapping[str, Any], *, success: str, submitted_at: datetime | None) -> JobStatus | None:
    """The status of a job that a condition reports as ended; None while it runs.

    Args:
        status: The object's `status`.
        success: Type of the condition of a job that succeeded. A failed one has the condition `Failed`.
        submitted_at: When the object was created.
    """
    started_at = time_of(status.get("startTime"))
    for condition in status.get("conditions") or ():
        if condition["status"] != "True":
            continue
        if condition["type"] == success:
            return JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=submitted_at, started_at=started_at)
        # A Job has `FailureTarget` until the last of its pods has ended, which on a lost node may be never
        # (Kubernetes documentation, "Job termination and cleanup").
        if condition["type"] in ("Failed", "FailureTarget"):
            return JobStatus(
                phase=None,
                failure_reason=condition.get("reason"),
                failure_message=condition.get("message"),
                submitted_at=submitted_at,
                started_at=started_at,
            )
    return None


def unfinished(complete: bool, submitted_at: datetime | None, *, started_at: datetime | None) -> JobStatus:
    """The status of a job that has not ended.

    Args:
        complete: Whether all pods of the gang run.
        submitted_at: When the object was created.
        started_at: When the job began to run, if it does.
    """
    return JobStatus(
        phase=JobPhase.RUNNING if complete else JobPhase.PENDING,
        submitted_at=submitted_at,
        started_at=started_at if complete else None,
    )


def of_programs(job: JobRef, status: JobStatus, pods: Sequence[Mapping[str, Any]]) -> JobStatus:
    """The status of a job that has not succeeded, corrected by how the programs in its pods ended.

    A container that the cluster injects keeps a pod running after its program has ended, or fails the pod of a program
    that has succeeded. An elastic job goes on after a program that failed, so only its success is corrected.

    Args:
        job: The job.
        status: Its status by its own object.
        pods: Its pods, if containers are injected; empty otherwise.
    """
    codes = [program_exit_code(pod) for pod in pods]
    if len(codes) >= job.gang_size and all(code == 0 for code in codes):
        return replace(status, phase=JobPhase.SUCCEEDED, failure_reason=None, failure_message=None)
    if status.phase is not None and not job.elastic and any(codes):
        return replace(status, phase=None, failure_reason="PodFailed", failure_message="has a program that failed")
    return status


def count(status: Mapping[str, Any], *names: str) -> int:
    """Sum of the counters of these names; a missing one counts as 0."""
    return sum(int(status.get(name) or 0) for name in names)


def time_of(text: str | None) -> datetime | None:
    """A time in the API's format, parsed; None if it is missing."""
    return datetime.fromisoformat(text) if text else None
