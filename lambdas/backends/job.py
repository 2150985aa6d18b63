"""Backend `job`: a Kubernetes Indexed Job and the headless Service that gives its pods names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.kubernetes.status import count, ended_by_condition, time_of, unfinished
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobRef

DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
"""Condition of a pod that a drain, a taint, preemption or garbage collection ends."""

DESCRIPTION = KUBERNETES_KINDS["job"]


def render(job: Job) -> list[dict[str, Any]]:
    """The objects to create, in order: names must resolve before the first pod starts."""
    return [_service(job), _indexed_job(job)]


def _service(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pods.metadata(job),
        "spec": {
            "clusterIP": "None",
            # Peers resolve each other's names while they start, before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": job.ref.name},
        },
    }


def _indexed_job(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": DESCRIPTION.api_version,
        "kind": DESCRIPTION.kind,
        "metadata": pods.metadata(job),
        "spec": {
            "completionMode": "Indexed",
            "completions": job.ref.num_nodes,
            "parallelism": job.ref.num_nodes,
            # Data-parallel training cannot continue without a worker: the first failure ends the job.
            "backoffLimit": 0,
            # The pod that a drain or preemption ended is deleted; the Job's own condition stays.
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onPodConditions": [dict(DISRUPTED)]}]},
            "activeDeadlineSeconds": job.deadline_seconds,
            "ttlSecondsAfterFinished": pods.KEPT_SECONDS,
            "template": pods.template(job, pods.pod_spec(job, deadline=False) | {"subdomain": job.ref.name}),
        },
    }


def read_status(job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job, from the Job's own counters."""
    if (ended := ended_by_condition(status, success="Complete", submitted_at=submitted_at)) is not None:
        return ended
    counted = status.get("uncountedTerminatedPods") or {}
    running = count(status, "ready", "succeeded", "failed")
    running += len(counted.get("succeeded") or ()) + len(counted.get("failed") or ())
    return unfinished(running >= job.gang_size, submitted_at, started_at=time_of(status.get("startTime")))


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status)
