"""The pod that every backend runs: devices, volumes, limits, identity. Backends add the addresses of the pods."""

from __future__ import annotations

import math
from typing import Any

from lambdas.logic.jobs import Job
from trainflow.models.instances import (
    EFA_INTERFACE,
    HUGE_PAGES,
    HUGE_PAGES_OF_EFA_POD_MIB,
    INSTANCE_TYPE_LABEL,
    NEURON_DEVICE,
    InstanceType,
    nodegroup_name,
)
from trainflow.models.kubernetes_names import (
    ATTEMPT_LABEL,
    BACKEND_LABEL,
    ELASTIC_LABEL,
    JOB_LABEL,
    MANAGED_BY,
    RUN_LABEL,
    SPEC_HASH_ANNOTATION,
    STAGE_LABEL,
    TRAINING_NODES,
)
from trainflow.models.node_room import training_pod
from trainflow.protocol import variables
from trainflow.protocol.pods import CLAIM, MOUNTS, SCRATCH_MOUNT, SERVICE_ACCOUNT, USER
from trainflow.protocol.result import RESULT_FILE

GRACE_PERIOD_SECONDS = 120
"""Time for a checkpoint between SIGTERM and SIGKILL: Spot gives two minutes."""

SHARED_MEMORY_GIB = 8
"""Memory for data loaders; the 64 MiB that Kubernetes gives a container by itself is too little."""

KEPT_SECONDS = 7 * 24 * 3600
"""How long a finished job is kept where nothing tears it down: over a weekend and some days."""

NODEGROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""Label of every node of a managed node group. A node group's EFA nodes are in one placement group."""

SMALL_REQUESTS = {"cpu": "250m", "memory": "512Mi"}
SMALL_LIMITS = {"memory": "2Gi"}
"""Staging and publishing stream: their memory does not grow with the data."""


def metadata(job: Job) -> dict[str, Any]:
    """Name, labels and the hash of what the job does, for each of its objects."""
    return {"name": job.ref.name, "labels": labels(job), "annotations": {SPEC_HASH_ANNOTATION: job.spec_hash}}


def labels(job: Job) -> dict[str, str]:
    """Labels by which the workflow and people find a job's objects."""
    return {
        **MANAGED_BY,
        RUN_LABEL: job.run_id,
        STAGE_LABEL: job.ref.stage.value,
        ATTEMPT_LABEL: str(job.ref.attempt),
        JOB_LABEL: job.ref.name,
        BACKEND_LABEL: job.ref.backend,
        **({ELASTIC_LABEL: "true"} if job.ref.elastic else {}),
    }


def template(job: Job, spec: dict[str, Any]) -> dict[str, Any]:
    """Template from which controllers make pods."""
    return {"metadata": {"labels": labels(job)}, "spec": spec}


def pod_spec(job: Job, *, container: str | None = None, deadline: bool = True) -> dict[str, Any]:
    """The pod of one node.

    Args:
        job: The job that it is part of.
        container: Name of the container; the stage's if left out.
        deadline: Whether the pod itself ends the job in time; not, where the job's controller does.
    """
    spec: dict[str, Any] = {"restartPolicy": "Never"}
    if deadline:
        spec["activeDeadlineSeconds"] = job.deadline_seconds
    if job.priority_class is not None:
        spec["priorityClassName"] = job.priority_class
    return spec | {
        "serviceAccountName": SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_PERIOD_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(job, container or job.ref.stage.value)],
        "volumes": _volumes(job),
        **(_placement(job.instance, num_nodes=job.ref.num_nodes) if job.instance else _off_training_nodes()),
    }


def _placement(instance: InstanceType, *, num_nodes: int) -> dict[str, Any]:
    """Nodes of the instance type; for a gang over EFA those of one node group, and so of one placement group."""
    selector = {INSTANCE_TYPE_LABEL: instance.name}
    if instance.uses_efa(num_nodes):
        selector[NODEGROUP_LABEL] = nodegroup_name(instance.name)
    return {
        "nodeSelector": selector,
        "tolerations": [
            {"key": resource, "operator": "Exists", "effect": "NoSchedule"}
            for resource in instance.devices
            if resource in (NEURON_DEVICE, EFA_INTERFACE)
        ],
    }


def _off_training_nodes() -> dict[str, Any]:
    """Any node but those that are released when a run ends, and a small program of another run with them.

    No node has to carry a label for it: on a cluster that Trainflow did not make, none does.
    """
    others = [{"key": key, "operator": "NotIn", "values": [value]} for key, value in TRAINING_NODES.items()]
    required = {"nodeSelectorTerms": [{"matchExpressions": others}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _volumes(job: Job) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}},
    ]
    if not job.writable_root:
        volumes.append({"name": "tmp", "emptyDir": {}})
    if _has_scratch(job):
        volumes.append({"name": "scratch", "emptyDir": {}})
    return volumes


def _has_scratch(job: Job) -> bool:
    """Our nodes keep the kubelet's folder, and with it every emptyDir, on their NVMe disks."""
    return job.instance is not None and job.instance.has_scratch


def _container(job: Job, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": job.image,
        "command": list(job.command),
        "env": _environment(job),
        "resources": _resources(job),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": not job.writable_root,
        },
        "terminationMessagePath": RESULT_FILE,
        # Programs that leave no result are explained by their last lines.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(job),
    }


def _environment(job: Job) -> list[dict[str, Any]]:
    environment: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in sorted(job.environment.items())
    ]
    if job.ref.elastic:
        environment.append({"name": variables.POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    return environment


def _mounts(job: Job) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "shared", "mountPath": mount, "subPath": mount.lstrip("/")} for mount in MOUNTS
    ]
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108  (the container's own)
    if not job.writable_root:
        mounts.append({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108  (the container's own)
    if _has_scratch(job):
        mounts.append({"name": "scratch", "mountPath": SCRATCH_MOUNT})
    return mounts


def _resources(job: Job) -> dict[str, dict[str, str]]:
    if job.instance is None:
        return {"requests": dict(SMALL_REQUESTS), "limits": dict(SMALL_LIMITS)}
    devices = _devices(job.instance, job.processes_per_node, num_nodes=job.ref.num_nodes)
    # One training pod a node: it asks for all that daemon sets leave of it.
    room = training_pod(job.instance)
    memory = f"{room.memory_mib // 1024}Gi"
    requests = {"cpu": f"{room.millicpu}m", "memory": memory, **devices}
    return {"requests": requests, "limits": {"memory": memory, **devices}}


def _devices(instance: InstanceType, processes_per_node: int, *, num_nodes: int) -> dict[str, str]:
    """Whole chips that cover the processes; every EFA interface, and its huge pages, when the gang spans nodes."""
    devices: dict[str, str] = {}
    if instance.accelerated:
        cores_per_chip = instance.neuron_cores // instance.neuron_devices
        devices[NEURON_DEVICE] = str(math.ceil(processes_per_node / cores_per_chip))
    if instance.uses_efa(num_nodes):
        devices[EFA_INTERFACE] = str(instance.efa_interfaces)
        devices[HUGE_PAGES] = f"{HUGE_PAGES_OF_EFA_POD_MIB}Mi"
    return devices
