"""The JobSet of a gang, with one replicated job.

The backend `jobset` creates it, and Kubeflow Trainer makes it from the runtime of the backend `trainjob`. Every policy
is explicit: the defaults differ between versions of JobSet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.status import count, ended_by_condition, unfinished
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import GANG
from trainflow.observed.job import JobStatus


def jobset_spec(job: Job, *, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The spec without a time to live.

    Args:
        job: The job.
        labels: Labels of its Job; none if left out.
    """
    return {
        "successPolicy": {"operator": "All", "targetReplicatedJobs": []},
        # Only the workflow restarts: it first reads the reason of the failure and requests the nodes.
        "failurePolicy": {"maxRestarts": 0, "restartStrategy": "Recreate"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": GANG, "replicas": 1, "template": _indexed_job(job, labels)}],
    }


def _indexed_job(job: Job, labels: Mapping[str, str] | None) -> dict[str, Any]:
    template: dict[str, Any] = {"metadata": {"labels": dict(labels)}} if labels else {}
    return template | {
        "spec": {
            "completionMode": "Indexed",
            "completions": job.ref.num_nodes,
            "parallelism": job.ref.num_nodes,
            "backoffLimit": 0,
            # The pods have the deadline. A JobSet reports that one of its Jobs failed, but not that it ran too long,
            # and at a TrainJob's own deadline, Trainer deletes the pods with their logs.
            "template": pods.template(job, pods.pod_spec(job)),
        }
    }


def gang_status(
    status: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]], submitted_at: datetime | None, *, success: str
) -> JobStatus:
    """Status of a gang. Its Job counts as ready when all pods are.

    Neither a JobSet nor a TrainJob reports when it started: its creation comes closest.

    Args:
        status: Status of the object, with its conditions.
        jobs: Numbers of ready, succeeded and failed Jobs for each replicated job.
        submitted_at: Time of the object's creation; None if it is not known.
        success: Type of the condition that stands for success.
    """
    if (ended := ended_by_condition(status, success=success, submitted_at=submitted_at)) is not None:
        return ended
    complete = bool(jobs) and all(count(each, "ready", "succeeded", "failed") for each in jobs)
    return unfinished(complete, submitted_at, started_at=submitted_at)
