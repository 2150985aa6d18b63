"""How far is a job? Each kind of object says it in another way; here they say the same.

A job is pending until all pods of its gang run. Pods that have ended count as running: they do not end all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from trainflow.models.backends import BackendName
from trainflow.models.job_status import JobStatus
from trainflow.models.run import JobPhase, JobRef

VOLCANO_FAILURES = ("Aborting", "Aborted", "Terminating", "Terminated", "Failed")
"""States that a Volcano Job does not leave for a good one (volcano.sh/apis, `JobPhase`)."""


def job_status(job: JobRef, found: Mapping[str, Any]) -> JobStatus:
    """The status of a job.

    Args:
        job: The job.
        found: The object as the API serves it.
    """
    submitted_at = _time(found.get("metadata", {}).get("creationTimestamp"))
    return _READERS[job.backend](job, found.get("status") or {}, submitted_at)


def _of_indexed_job(job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    if (ended := _by_condition(status, success="Complete", submitted_at=submitted_at)) is not None:
        return ended
    counted = status.get("uncountedTerminatedPods") or {}
    running = _count(status, "ready", "succeeded", "failed")
    running += len(counted.get("succeeded") or ()) + len(counted.get("failed") or ())
    return _unfinished(running >= job.gang_size, submitted_at, started_at=_time(status.get("startTime")))


def _of_jobset(_job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Its Job counts as ready when all pods are. A JobSet does not say when it started: its creation comes closest."""
    if (ended := _by_condition(status, success="Completed", submitted_at=submitted_at)) is not None:
        return ended
    replicated: list[Mapping[str, Any]] = status.get("replicatedJobsStatus") or []
    complete = bool(replicated) and all(_count(each, "ready", "succeeded", "failed") for each in replicated)
    return _unfinished(complete, submitted_at, started_at=submitted_at)


def _of_volcano_job(job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Its state changes once a pod has failed only if a policy says so: so the pods are counted."""
    state: Mapping[str, Any] = status.get("state") or {}
    phase = state.get("phase", "Pending")
    if phase == "Completed":
        return JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=submitted_at)
    if phase in VOLCANO_FAILURES or status.get("failed"):
        reason = phase if phase in VOLCANO_FAILURES else "PodFailed"
        return JobStatus(
            phase=None, failure_reason=reason, failure_message=state.get("message"), submitted_at=submitted_at
        )
    complete = phase == "Completing" or _count(status, "running", "succeeded") >= job.gang_size
    return _unfinished(complete, submitted_at, started_at=_time(state.get("lastTransitionTime")) or submitted_at)


def _of_pytorchjob(job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    if (ended := _by_condition(status, success="Succeeded", submitted_at=submitted_at)) is not None:
        return ended
    replicas: Mapping[str, Any] = status.get("replicaStatuses") or {}
    running = sum(_count(each, "active", "succeeded", "failed") for each in replicas.values())
    return _unfinished(running >= job.gang_size, submitted_at, started_at=_time(status.get("startTime")))


def _of_pod(_job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    phase = status.get("phase")
    if phase == "Succeeded":
        return JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=submitted_at)
    if phase == "Failed":
        reason = status.get("reason") or "PodFailed"
        return JobStatus(
            phase=None, failure_reason=reason, failure_message=status.get("message"), submitted_at=submitted_at
        )
    return _unfinished(phase == "Running", submitted_at, started_at=_time(status.get("startTime")))


_READERS: Mapping[BackendName, Callable[[JobRef, Mapping[str, Any], datetime | None], JobStatus]] = {
    "job": _of_indexed_job,
    "jobset": _of_jobset,
    "volcano": _of_volcano_job,
    "pytorchjob": _of_pytorchjob,
    "pod": _of_pod,
}


def _by_condition(status: Mapping[str, Any], *, success: str, submitted_at: datetime | None) -> JobStatus | None:
    """The end of a job that says it by a condition; None while it goes on."""
    started_at = _time(status.get("startTime"))
    for condition in status.get("conditions") or ():
        if condition["status"] != "True":
            continue
        if condition["type"] == success:
            return JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=submitted_at, started_at=started_at)
        if condition["type"] == "Failed":
            return JobStatus(
                phase=None,
                failure_reason=condition.get("reason"),
                failure_message=condition.get("message"),
                submitted_at=submitted_at,
                started_at=started_at,
            )
    return None


def _unfinished(complete: bool, submitted_at: datetime | None, *, started_at: datetime | None) -> JobStatus:
    return JobStatus(
        phase=JobPhase.RUNNING if complete else JobPhase.PENDING,
        submitted_at=submitted_at,
        started_at=started_at if complete else None,
    )


def _count(status: Mapping[str, Any], *names: str) -> int:
    return sum(int(status.get(name) or 0) for name in names)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
