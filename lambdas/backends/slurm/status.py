"""Meaning of Slurm's states and reasons: phase of a job, failure, and reason for being pending.

The states and reasons are those of `squeue`'s manual, "JOB STATE CODES" and "JOB REASON CODES".
"""

from __future__ import annotations

from collections.abc import Mapping

from trainflow.deployment.slurm import SlurmJob
from trainflow.observed.job import DEADLINE_EXCEEDED, JobStatus
from trainflow.workflow.run import JobPhase

WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
"""States of a job before its script starts. While CONFIGURING the nodes are being started."""

ENDING = "COMPLETING"
"""Flag of a job whose last processes are being ended: it has not ended yet."""

FAILURES: Mapping[str, tuple[str, str]] = {
    "FAILED": ("JobFailed", "ended with an error"),
    "TIMEOUT": (DEADLINE_EXCEEDED, "ran longer than its time limit"),
    "DEADLINE": (DEADLINE_EXCEEDED, "could not have ended before its deadline"),
    "NODE_FAIL": ("NodeLost", "lost {node}"),
    "BOOT_FAIL": ("NodeLost", "did not start, because {node} did not boot"),
    "PREEMPTED": ("Preempted", "was preempted by a job of higher priority"),
    "OUT_OF_MEMORY": ("OutOfMemory", "ran out of memory on one of its nodes"),
    "CANCELLED": ("Cancelled", "was cancelled by {who}"),
    "REVOKED": ("Cancelled", "was taken over by another cluster of Slurm's federation"),
    "LAUNCH_FAILED": ("NodeLost", "could not be started on {node}"),
}
"""Reason and sentence of a failure, by the state of a job that has ended badly."""

PENDING_REASONS: Mapping[str, str] = {
    "Resources": "its nodes are used by other jobs",
    "Priority": "jobs of higher priority come first",
    "Dependency": "an earlier job of the run has not ended yet",
    "DependencyNeverSatisfied": "it waits for a job that has failed",
    "PartitionNodeLimit": "it asks for more nodes than a job may have in its partition",
    "PartitionTimeLimit": "its time limit is above its partition's",
    "PartitionConfig": "its partition does not allow as many nodes, or as much time",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "BadConstraints": "no nodes of the cluster are as it asks for",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "BeginTime": "its time to begin has not come",
    "JobHeldUser": "it is held; `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it",
    "Licenses": "it waits for a licence",
    "Reservation": "it waits for its reservation",
    "JobLaunchFailure": "it could not be started on its nodes",
    "AssociationJobLimit": "its account has as many jobs as it may have",
    "AssocMaxJobsLimit": "its account has as many jobs as it may have",
    "AssocGrpNodeLimit": "its account has as many nodes as it may have",
    "QOSMaxJobsPerUserLimit": "its user has as many jobs as the quality of service allows",
    "QOSResourceLimit": "its quality of service does not allow as much",
    "InvalidAccount": "its account is unknown",
    "InvalidQOS": "its quality of service is unknown",
}
"""Sentences by Slurm's reason; other reasons are shown unchanged."""


def job_status(job: SlurmJob, *, cancelled_by: str | None = None) -> JobStatus:
    """The status of a job.

    Args:
        job: The job as slurmctld reports it.
        cancelled_by: The user who cancelled it, if that is known.
    """
    phase = _phase(job)
    if phase is not None:
        running = phase is not JobPhase.PENDING
        return JobStatus(phase=phase, submitted_at=job.submitted_at, started_at=job.started_at if running else None)
    reason, sentence = next(FAILURES[state] for state in FAILURES if state in job.states)
    node = f"node '{job.failed_node}'" if job.failed_node else f"a node of {job.nodes}" if job.nodes else "a node"
    who = f"the user '{cancelled_by}'" if cancelled_by else "an unknown user (Slurm does not name one)"
    because = _because(job)
    return JobStatus(
        phase=None,
        failure_reason=reason,
        failure_message=f"{sentence.format(node=node, who=who)}{f' ({because})' if because else ''}",
        submitted_at=job.submitted_at,
        started_at=job.started_at,
    )


def is_over(job: SlurmJob) -> bool:
    """Whether the job has ended for good."""
    return _phase(job) in (None, JobPhase.SUCCEEDED)


def was_cancelled(job: SlurmJob) -> bool:
    """Whether a user cancelled the job."""
    return "CANCELLED" in job.states


def pending_reason(job: SlurmJob) -> str | None:
    """The reason why a job is pending; None if Slurm reports none."""
    if "CONFIGURING" in job.states:
        return f"the nodes {job.nodes} are being started"
    return _because(job) if _phase(job) is JobPhase.PENDING else None


def _phase(job: SlurmJob) -> JobPhase | None:
    if job.states & WAITING:
        return JobPhase.PENDING
    if ENDING in job.states:
        return JobPhase.RUNNING
    if "COMPLETED" in job.states:
        return JobPhase.SUCCEEDED
    return None if job.states & FAILURES.keys() else JobPhase.RUNNING


def _because(job: SlurmJob) -> str | None:
    reason, description = job.reason, job.description
    if reason is None or reason == "NonZeroExitCode":
        return description
    # Slurm adds names of nodes behind a comma, here or there: "ReqNodeNotAvail, UnavailableNodes:n1".
    word = reason.partition(",")[0]
    if description and description.startswith(word):
        reason, description = max(reason, description, key=len), None
    explained = f"{PENDING_REASONS[word]}: {reason}" if word in PENDING_REASONS else reason
    return f"{explained}; {description}" if description else explained
