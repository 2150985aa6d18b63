"""Pods that hold the nodes of a gang until all of them are there, on a cluster that makes nodes for pending pods.

A placeholder has the requests, the selectors, the tolerations and the claims of the gang's pod, so that an autoscaler
makes the node that the gang needs. It runs the gang's image, so that the image is on the node when the gang starts
(docs/decisions/0104-nodes-by-the-cluster.md).
"""

from __future__ import annotations

from typing import Any

from lambdas.backends.kubernetes.pods import labels, pod_spec
from lambdas.logic.jobs import Job
from trainflow.deployment.kubernetes_names import (
    BACKEND_LABEL,
    MANAGED_BY,
    PLACEHOLDER_LABEL,
    PLACEHOLDER_PRIORITY,
    PROJECT_LABEL,
    RUN_LABEL,
    TEAM_LABEL,
    UNDISTURBED,
)

GRACE_SECONDS = 1
"""Seconds between SIGTERM and SIGKILL. With 0 the pod's object would be gone before the node has freed its devices."""

SPARE_SECONDS = 1800
"""Time that a placeholder lives beyond the wait for its gang: it ends by itself if nothing else ends it."""

WAITING = ["python", "-c", "import signal; signal.pause()"]

KEPT_LABELS = (*MANAGED_BY, RUN_LABEL, TEAM_LABEL, PROJECT_LABEL)


def placeholder(job: Job, number: int, *, wait_seconds: float) -> dict[str, Any]:
    """One of the placeholders of a gang.

    Args:
        job: The job that will take their places.
        number: From 0 to the number of nodes less one.
        wait_seconds: Longest time that the gang is waited for.
    """
    spec = pod_spec(job, deadline=False)
    program = spec["containers"][0]
    claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    kept = ("serviceAccountName", "automountServiceAccountToken", "securityContext", "nodeSelector", "tolerations")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job.run_id}-node-{number}",
            "labels": {
                **{name: value for name, value in labels(job).items() if name in KEPT_LABELS},
                # A pod without a controller is deleted with its run as the jobs of backend `pod` are.
                BACKEND_LABEL: "pod",
                PLACEHOLDER_LABEL: "true",
            },
            "annotations": dict(UNDISTURBED),
        },
        "spec": {
            **{field: spec[field] for field in (*kept, "affinity") if field in spec},
            "restartPolicy": "Never",
            "priorityClassName": PLACEHOLDER_PRIORITY,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "activeDeadlineSeconds": round(wait_seconds) + SPARE_SECONDS,
            "containers": [
                {
                    "name": "placeholder",
                    "image": program["image"],
                    "command": list(WAITING),
                    "resources": program["resources"],
                    "securityContext": program["securityContext"],
                }
            ],
            "volumes": claims,
        },
    }
