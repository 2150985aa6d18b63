"""Backend `jobset`: a JobSet of one Indexed Job. Its controller makes the headless Service, named as the JobSet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.kubernetes.status import count, ended_by_condition, unfinished
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import GANG, KUBERNETES_KINDS
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobRef

DESCRIPTION = KUBERNETES_KINDS["jobset"]


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create.

    Every policy is explicit: the defaults differ between versions of JobSet.
    """
    return [
        {
            "apiVersion": DESCRIPTION.api_version,
            "kind": DESCRIPTION.kind,
            "metadata": pods.metadata(job),
            "spec": {
                "successPolicy": {"operator": "All", "targetReplicatedJobs": []},
                # Only the workflow restarts: it first reads the reason of the failure and requests the nodes.
                "failurePolicy": {"maxRestarts": 0, "restartStrategy": "Recreate"},
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
                "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                "ttlSecondsAfterFinished": pods.KEPT_SECONDS,
                "replicatedJobs": [{"name": GANG, "replicas": 1, "template": {"spec": _indexed_job(job)}}],
            },
        }
    ]


def _indexed_job(job: Job) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "completions": job.ref.num_nodes,
        "parallelism": job.ref.num_nodes,
        "backoffLimit": 0,
        # The pods have the deadline: a JobSet reports that one of its Jobs failed, but not that it ran too long.
        "template": pods.template(job, pods.pod_spec(job)),
    }


def read_status(_job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job. Its Job counts as ready when all pods are.

    A JobSet does not report when it started: its creation comes closest.
    """
    if (ended := ended_by_condition(status, success="Completed", submitted_at=submitted_at)) is not None:
        return ended
    replicated: list[Mapping[str, Any]] = status.get("replicatedJobsStatus") or []
    complete = bool(replicated) and all(count(each, "ready", "succeeded", "failed") for each in replicated)
    return unfinished(complete, submitted_at, started_at=submitted_at)


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status)
