"""Backend `jobset`: a JobSet of one Indexed Job. Its controller makes the headless Service, named as the JobSet."""

from __future__ import annotations

from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.logic.jobs import Job
from trainflow.models.backends import GANG, KUBERNETES_KINDS


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create.

    Every policy is spelled out: what a JobSet does by itself differs between its versions.
    """
    return [
        {
            "apiVersion": KUBERNETES_KINDS["jobset"].api_version,
            "kind": "JobSet",
            "metadata": pods.metadata(job),
            "spec": {
                "successPolicy": {"operator": "All", "targetReplicatedJobs": []},
                # Started again by the workflow alone, which looks first why it failed and for the nodes.
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
        # The pods have the deadline: a JobSet says that one of its Jobs failed, but not that it ran too long.
        "template": pods.template(job, pods.pod_spec(job)),
    }
