"""Backend `volcano`: a Volcano Job of one task. Its scheduler starts all pods of the gang or none."""

from __future__ import annotations

from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.logic.jobs import Job
from trainflow.models.backends import GANG, KUBERNETES_KINDS
from trainflow.models.volcano_queues import DEFAULT_QUEUE


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create.

    No policy ends the job when a pod fails or completes: whatever Volcano does then removes the pods that still run,
    and their logs with them. The watch sees the failed pod in the job's status, collects, and tears down. A pod that
    was evicted leaves nothing, and a new one in its place would meet a gang that is in the middle of its training.
    """
    return [
        {
            "apiVersion": KUBERNETES_KINDS["volcano"].api_version,
            "kind": "Job",
            "metadata": pods.metadata(job),
            "spec": {
                "schedulerName": "volcano",
                "queue": job.queue or DEFAULT_QUEUE,
                "minAvailable": job.ref.num_nodes,
                "maxRetry": 1,
                **({"priorityClassName": job.priority_class} if job.priority_class else {}),
                "ttlSecondsAfterFinished": pods.KEPT_SECONDS,
                "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
                "policies": [{"event": "PodEvicted", "action": "TerminateJob"}],
                "tasks": [
                    {
                        "name": GANG,
                        "replicas": job.ref.num_nodes,
                        "template": pods.template(job, pods.pod_spec(job)),
                    }
                ],
            },
        }
    ]
