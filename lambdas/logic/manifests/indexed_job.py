"""Backend `job`: a Kubernetes Indexed Job and the headless Service that gives its pods names."""

from __future__ import annotations

import math
from typing import Any

from lambdas.logic.jobs import CACHE_MOUNT, DATA_MOUNT, RESULT_FILE, RUNS_MOUNT, Job
from lambdas.models.instances import EFA_INTERFACE, INSTANCE_TYPE_LABEL, NEURON_DEVICE, InstanceType
from lambdas.models.kubernetes_names import ATTEMPT_LABEL, MANAGED_BY, RUN_LABEL, SPEC_HASH_ANNOTATION, STAGE_LABEL

CLAIM = "fsx-claim"
"""The shared file system's PersistentVolumeClaim, named as in the tutorial."""

SERVICE_ACCOUNT = "training"
"""Bound to the pods' IAM role by EKS Pod Identity."""

GRACE_PERIOD_SECONDS = 120
"""Time for a checkpoint between SIGTERM and SIGKILL: Spot gives two minutes."""

SHARED_MEMORY_GIB = 8
"""For data loaders; the 64 MiB that Kubernetes gives a container by itself is too little."""

SMALL_REQUESTS = {"cpu": "250m", "memory": "512Mi"}
SMALL_LIMITS = {"memory": "2Gi"}
"""Staging and publishing stream: their memory does not grow with the data."""


def render(job: Job) -> list[dict[str, Any]]:
    """The objects to create, in order: names must resolve before the first pod starts."""
    return [_service(job), _indexed_job(job)]


def _metadata(job: Job) -> dict[str, Any]:
    return {
        "name": job.ref.name,
        "labels": {
            **MANAGED_BY,
            RUN_LABEL: job.run_id,
            STAGE_LABEL: job.ref.stage.value,
            ATTEMPT_LABEL: str(job.ref.attempt),
        },
        "annotations": {SPEC_HASH_ANNOTATION: job.spec_hash},
    }


def _service(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job),
        "spec": {
            "clusterIP": "None",
            # Peers look each other up while they start, before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": job.ref.name},
        },
    }


def _indexed_job(job: Job) -> dict[str, Any]:
    metadata = _metadata(job)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": job.ref.num_nodes,
            "parallelism": job.ref.num_nodes,
            # Data-parallel training cannot go on without a worker: the first failure ends the job.
            "backoffLimit": 0,
            "activeDeadlineSeconds": job.deadline_seconds,
            "template": {"metadata": {"labels": metadata["labels"]}, "spec": _pod(job)},
        },
    }


def _pod(job: Job) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "subdomain": job.ref.name,
        "serviceAccountName": SERVICE_ACCOUNT,
        "terminationGracePeriodSeconds": GRACE_PERIOD_SECONDS,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
        "containers": [_container(job)],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}},
        ],
    }
    if job.instance is not None:
        pod["nodeSelector"] = {INSTANCE_TYPE_LABEL: job.instance.name}
        pod["tolerations"] = [
            {"key": resource, "operator": "Exists", "effect": "NoSchedule"}
            for resource in job.instance.devices
            if resource in (NEURON_DEVICE, EFA_INTERFACE)
        ]
    return pod


def _container(job: Job) -> dict[str, Any]:
    return {
        "name": job.ref.stage.value,
        "image": job.image,
        "command": list(job.command),
        "env": [{"name": name, "value": value} for name, value in sorted(job.environment.items())],
        "resources": _resources(job),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePath": RESULT_FILE,
        # Programs that leave no result are explained by their last lines.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *(
                {"name": "shared", "mountPath": mount, "subPath": mount.lstrip("/")}
                for mount in (DATA_MOUNT, RUNS_MOUNT, CACHE_MOUNT)
            ),
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  (the container's own)
        ],
    }


def _resources(job: Job) -> dict[str, dict[str, str]]:
    if job.instance is None:
        return {"requests": dict(SMALL_REQUESTS), "limits": dict(SMALL_LIMITS)}
    devices = _devices(job.instance, job.processes_per_node, num_nodes=job.ref.num_nodes)
    # One training pod a node: it asks for the node but for what a staging pod needs beside it.
    memory = f"{job.instance.allocatable_memory_gib - 1}Gi"
    cpu = f"{job.instance.allocatable_millicpu - 500}m"
    return {"requests": {"cpu": cpu, "memory": memory, **devices}, "limits": {"memory": memory, **devices}}


def _devices(instance: InstanceType, processes_per_node: int, *, num_nodes: int) -> dict[str, str]:
    """Whole chips that cover the processes; every EFA interface when the gang spans nodes."""
    devices: dict[str, str] = {}
    if instance.accelerated:
        cores_per_chip = instance.neuron_cores // instance.neuron_devices
        devices[NEURON_DEVICE] = str(math.ceil(processes_per_node / cores_per_chip))
    if instance.efa_interfaces and num_nodes > 1:
        devices[EFA_INTERFACE] = str(instance.efa_interfaces)
    return devices
