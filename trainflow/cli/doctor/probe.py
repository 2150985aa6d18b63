"""The probe pod, a stand-in for a run's pods: same image, user, volumes, service account and node. Pure."""

from __future__ import annotations

import inspect
from typing import Any

from trainflow.cli.doctor import gang, inside
from trainflow.cli.doctor.gang import DOCTOR_LABEL, Object
from trainflow.deployment.kubernetes_names import DEFAULT_CONTAINER_ANNOTATION, MANAGED_BY, RUN_LABEL
from trainflow.protocol.result import RESULT_FILE

DEADLINE_SECONDS = 300
"""The pod ends by itself if the doctor is interrupted; pulling its image may take minutes."""

SMALL = {"cpu": "100m", "memory": "128Mi"}
"""Resources that even a full node can give: no devices, since the run's own pods hold them."""

CONTAINER = "doctor"
"""Name of the probe pod's container, beside those that the cluster injects."""

FROM_POD = ("serviceAccountName", "automountServiceAccountToken", "securityContext", "volumes", "imagePullSecrets")
FROM_CONTAINER = ("image", "imagePullPolicy", "env", "envFrom", "securityContext", "volumeMounts")


def questions(pod: Object) -> list[str]:
    """The command that checks what the pod depends on, for any pod that has its mounts.

    Paths and the host are words of their own: the twin's node rewrites them.
    """
    words = ["python", "-c", inspect.getsource(inside)]
    words += [f"--folder={path}" for path in gang.shared_folders(pod)]
    words += [f"--read_only={path}" for path in gang.shared_folders(pod, read_only=True)]
    place = gang.rendezvous(pod)
    if place is not None:
        words += [f"--host={place.host}", f"--port={place.port}"]
        words += [f"--full_host={full}"] if (full := gang.full_name(place.host, pod)) else []
    return words


def probe_pod(pod: Object, run: str, suffix: str) -> dict[str, Any]:
    """The manifest of the probe pod.

    It lacks the labels that controllers and Services select the run's pods by: it must not be counted as one.

    Args:
        pod: The pod of the run to stand in for.
        run: The run's id: its tear-down removes this pod, too.
        suffix: Makes the name unique.
    """
    spec, only = pod["spec"], gang.container(pod)
    wanted: dict[str, Any] = {key: spec[key] for key in FROM_POD if key in spec}
    place: dict[str, Any] = (
        {"nodeName": spec["nodeName"]} if spec.get("nodeName") else {"nodeSelector": spec.get("nodeSelector") or {}}
    )
    container: dict[str, Any] = {key: only[key] for key in FROM_CONTAINER if key in only}
    container |= {
        "name": CONTAINER,
        "command": [*questions(pod), f"--result={RESULT_FILE}"],
        "resources": {"requests": SMALL, "limits": {"memory": SMALL["memory"]}},
        "terminationMessagePath": RESULT_FILE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{run}-doctor-{suffix}",
            "labels": {**MANAGED_BY, RUN_LABEL: run, DOCTOR_LABEL: "true"},
            "annotations": {DEFAULT_CONTAINER_ANNOTATION: CONTAINER},
        },
        "spec": {
            **wanted,
            **place,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "tolerations": spec.get("tolerations") or [],
            "containers": [container],
        },
    }
