"""Backend `job`: a Kubernetes Indexed Job and the headless Service that gives its pods names."""

from __future__ import annotations

from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.logic.jobs import Job


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
            # Peers look each other up while they start, before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": job.ref.name},
        },
    }


def _indexed_job(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pods.metadata(job),
        "spec": {
            "completionMode": "Indexed",
            "completions": job.ref.num_nodes,
            "parallelism": job.ref.num_nodes,
            # Data-parallel training cannot go on without a worker: the first failure ends the job.
            "backoffLimit": 0,
            "activeDeadlineSeconds": job.deadline_seconds,
            "ttlSecondsAfterFinished": pods.KEPT_SECONDS,
            "template": pods.template(job, pods.pod_spec(job, deadline=False) | {"subdomain": job.ref.name}),
        },
    }
