"""Backend `pod`: one Pod, as the digits tutorial starts it. No controller recreates it or cleans it up."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.kubernetes.status import time_of, unfinished
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.deployment.kubernetes_names import UNDISTURBED
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobPhase, JobRef

DESCRIPTION = KUBERNETES_KINDS["pod"]


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create."""
    pod = {"apiVersion": DESCRIPTION.api_version, "kind": DESCRIPTION.kind}
    metadata = pods.metadata(job)
    annotations = {**metadata["annotations"], **UNDISTURBED}
    metadata |= {"labels": pods.pod_labels(job), "annotations": annotations}
    return [{**pod, "metadata": metadata, "spec": pods.pod_spec(job)}]


def read_status(_job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job, which is that of the pod."""
    phase = status.get("phase")
    if phase == "Succeeded":
        return JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=submitted_at)
    if phase == "Failed":
        reason = status.get("reason") or "PodFailed"
        return JobStatus(
            phase=None, failure_reason=reason, failure_message=status.get("message"), submitted_at=submitted_at
        )
    running = phase == "Running" and not _is_unready(status)
    return unfinished(running, submitted_at, started_at=time_of(status.get("startTime")))


def _is_unready(status: Mapping[str, Any]) -> bool:
    """Whether the pod is not ready, although it runs: Kubernetes marks all pods of a node that it cannot reach."""
    conditions = status.get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "False") for each in conditions)


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status)
