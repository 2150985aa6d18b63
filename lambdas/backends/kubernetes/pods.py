"""The pod that every backend runs: devices, volumes, limits, identity. Backends add the addresses of the pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lambdas.logic.jobs import Job, SharedFolder
from lambdas.logic.plans import fetch_plan
from trainflow.deployment.backends import DESCRIPTIONS, KUBERNETES_KINDS
from trainflow.deployment.kubernetes_names import (
    ATTEMPT_LABEL,
    BACKEND_LABEL,
    CONTROLLER_NODES,
    ELASTIC_LABEL,
    FETCH_CONTAINER,
    HELPERS_CONTAINER,
    JOB_LABEL,
    MANAGED_BY,
    NETWORK_LABEL,
    NODES_LABEL,
    PROJECT_LABEL,
    RUN_LABEL,
    SHARE_CONTAINER,
    SMALL_JOB_NODES,
    SPEC_HASH_ANNOTATION,
    STAGE_LABEL,
    TEAM_LABEL,
    TRAINING_NODES,
    UNDISTURBED,
)
from trainflow.nodes.instances import (
    EFA_INTERFACE,
    HUGE_PAGES,
    INSTANCE_TYPE_LABEL,
    InstanceType,
    nodegroup_name,
)
from trainflow.nodes.node_room import training_pod
from trainflow.protocol import variables
from trainflow.protocol.plan import to_words
from trainflow.protocol.pods import (
    CACHE_MOUNT,
    CLAIM,
    HELPERS,
    HELPERS_MOUNT,
    LOCAL_CHECKPOINTS_MOUNT,
    MOUNTS,
    SCRATCH_MOUNT,
    SERVICE_ACCOUNT,
    USER,
    WORKSPACE,
)
from trainflow.protocol.result import RESULT_FILE
from trainflow.spec.workload import Volume

GRACE_PERIOD_SECONDS = 120
"""Time for a checkpoint between SIGTERM and SIGKILL: Spot gives two minutes."""

KEPT_SECONDS = 7 * 24 * 3600
"""Seconds that a finished job is kept if the run does not delete it: a weekend and some days."""

LOST_NODE_SECONDS = 60
"""Seconds that a pod stays on a node that is unreachable or not ready; Kubernetes' default is 300. The other nodes of
the gang wait that long. Training continues on a node that loses its network for less."""

EVICTED_WHEN_LOST = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}

LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

NODEGROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""Label of every node of a managed node group. A node group's EFA nodes are in one placement group."""

SMALL_REQUESTS = {"cpu": "250m", "memory": "512Mi"}
SMALL_LIMITS = {"memory": "2Gi"}
"""Staging and publishing stream: their memory does not grow with the data. Nor does an init container's, which asks
for less than the gang's own container does, and so for nothing: the larger of the two counts for the pod."""


LOCAL_CHECKPOINTS = LOCAL_CHECKPOINTS_MOUNT.lstrip("/")
"""Name of the volume in memory. Its files count as memory of the container, whose limit is all that a pod may have."""

TERMINATION_MESSAGE = {
    "terminationMessagePath": RESULT_FILE,
    "terminationMessagePolicy": "FallbackToLogsOnError",
}
"""File of the result. Programs that leave none are explained by their last lines."""


def metadata(job: Job) -> dict[str, Any]:
    """Name, labels and the hash of what the job does, for each of its objects."""
    return {"name": job.ref.name, "labels": labels(job), "annotations": {SPEC_HASH_ANNOTATION: job.spec_hash}}


def labels(job: Job) -> dict[str, str]:
    """Labels that identify a job's objects, for the workflow and for people."""
    return {
        **MANAGED_BY,
        RUN_LABEL: job.run_id,
        STAGE_LABEL: job.ref.stage.value,
        ATTEMPT_LABEL: str(job.ref.attempt),
        JOB_LABEL: job.ref.name,
        BACKEND_LABEL: job.ref.backend,
        **({ELASTIC_LABEL: "true"} if job.ref.elastic else {}),
        **({TEAM_LABEL: job.team} if job.team else {}),
        **({PROJECT_LABEL: job.project} if job.project else {}),
    }


def template(job: Job, spec: dict[str, Any]) -> dict[str, Any]:
    """Pod template for the controllers."""
    return {"metadata": {"labels": pod_labels(job), "annotations": dict(UNDISTURBED)}, "spec": spec}


def pod_labels(job: Job) -> dict[str, str]:
    """Labels of a job's pods: those of its objects, and that of pods which no other job's pods reach."""
    return {**labels(job), NETWORK_LABEL: "job"}


def pod_spec(job: Job, *, deadline: bool = True) -> dict[str, Any]:
    """The pod of one node.

    Args:
        job: The job that it is part of.
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
        # Decision 37: an init container brings helpers and code, so that the user's image needs nothing of ours.
        **({"initContainers": [_helpers(job), *_packages(job)]} if job.helpers_image else {}),
        "containers": [_container(job)],
        "volumes": _volumes(job),
        **(_placement(job, job.instance) if job.instance else _small_job_placement()),
    }


def _placement(job: Job, instance: InstanceType) -> dict[str, Any]:
    """Nodes of the instance type but for the avoided ones; for a gang over EFA those of one node group, and so of one
    placement group, unless the cluster makes its nodes by itself."""
    selector = {INSTANCE_TYPE_LABEL: instance.name}
    if not job.cluster_makes_nodes and instance.uses_efa(job.ref.num_nodes):
        selector[NODEGROUP_LABEL] = nodegroup_name(instance.name)
    return {
        "nodeSelector": selector,
        "tolerations": [
            *({"key": each, "operator": "Exists", "effect": "NoSchedule"} for each in instance.tolerated),
            *({"key": each, **EVICTED_WHEN_LOST} for each in LOST_NODE_TAINTS),
        ],
        **({"affinity": {"nodeAffinity": _away_from(job.avoided_nodes)}} if job.avoided_nodes else {}),
    }


def _away_from(nodes: Sequence[str]) -> dict[str, Any]:
    # By name, since the label `kubernetes.io/hostname` of an EKS node need not be its name. Kubernetes takes one value
    # in each requirement on a field.
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = {"nodeSelectorTerms": [{"matchFields": others}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _small_job_placement() -> dict[str, Any]:
    """The nodes for small jobs where there are any, and nodes without a label of ours.

    Not training nodes, which are released when a run ends, and a small program of another run with them; nor nodes of
    controllers, whose rights the program would have if it broke out of its container. No node has to carry a label for
    it: on a cluster that Trainflow did not make, none does.
    """
    elsewhere = {
        "key": NODES_LABEL,
        "operator": "NotIn",
        "values": [TRAINING_NODES[NODES_LABEL], CONTROLLER_NODES[NODES_LABEL]],
    }
    required = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [
            {"key": NODES_LABEL, "operator": "Equal", "value": SMALL_JOB_NODES[NODES_LABEL], "effect": "NoSchedule"}
        ],
    }


def _volumes(job: Job) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{job.shared_memory_gib}Gi"}},
    ]
    if not job.writable_root:
        volumes.append({"name": "tmp", "emptyDir": {}})
    if _has_scratch(job):
        volumes.append({"name": "scratch", "emptyDir": {}})
    if job.local_checkpoints_gib is not None:
        size = f"{job.local_checkpoints_gib}Gi"
        volumes.append({"name": LOCAL_CHECKPOINTS, "emptyDir": {"medium": "Memory", "sizeLimit": size}})
    if job.helpers_image:
        volumes.append({"name": "helpers", "emptyDir": {}})
    if job.code:
        volumes.append({"name": "code", "emptyDir": {}})
    return [*volumes, *({"name": name, **_source(volume)} for name, volume in _further_volumes(job))]


def _further_volumes(job: Job) -> Iterator[tuple[str, Volume]]:
    """The spec's volumes with their names in the pod."""
    for number, volume in enumerate(job.volumes):
        yield f"volume-{number}", volume


def _source(volume: Volume) -> dict[str, Any]:
    if volume.claim is not None:
        return {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
    if volume.config_map is not None:
        return {"configMap": {"name": volume.config_map}}
    return {"emptyDir": {"sizeLimit": f"{volume.empty_dir_gib}Gi"}}


def _has_scratch(job: Job) -> bool:
    """Our nodes keep the kubelet's folder, and with it every emptyDir, on their NVMe disks."""
    return job.instance is not None and job.instance.has_scratch


def _container(job: Job) -> dict[str, Any]:
    return {
        "name": KUBERNETES_KINDS[job.ref.backend].container_name(job.ref.stage.value),
        "image": job.image,
        "command": _words(job),
        "env": _environment(job),
        "resources": _resources(job),
        "securityContext": _confined(writable_root=job.writable_root),
        **TERMINATION_MESSAGE,
        "volumeMounts": _mounts(job),
    }


def _words(job: Job) -> list[str]:
    """The command's words. The node's rank is the only variable that the kubelet fills in."""
    if job.plan is None:
        return list(map(_literal, job.command))
    supervisor = (HELPERS, "supervisor") if job.helpers_image else ("-m", "trainer.supervisor")
    backend = DESCRIPTIONS[job.ref.backend]
    place = ("--node_rank", backend.node_rank, "--master_addr", backend.rank0_address(job.ref.name))
    return ["python", *supervisor, *(() if job.ref.elastic else place), "--", *map(_literal, to_words(job.plan))]


def _literal(text: str) -> str:
    """A text that the kubelet passes on as it is: `$(NAME)` would be a variable (API reference, Container)."""
    return text.replace("$", "$$")


def _helpers(job: Job) -> dict[str, Any]:
    """Init container that installs the helpers for the program's container, whose image may hold nothing of ours, and
    the run's code.

    It also makes the run's folders on the shared file system, as the user of the pods. The kubelet makes a folder that
    a `subPath` names when the container starts that mounts it, as root and with the mode of the volume's root, so that
    the program could not write there (kubernetes/kubernetes, issue 91752).
    """
    made = [folder.path for folder in job.folders if folder.path not in MOUNTS]
    from_service = any(secret.secrets_manager is not None for secret in job.secrets.values())
    clients = (
        *(("--s3_client", "true") if job.ref.elastic else ()),
        *(("--secrets_client", "true") if from_service else ()),
    )
    code = ("--code", job.code, "--workspace", WORKSPACE) if job.code else ()
    folders = ("--folders", *made) if made else ()
    mounts = [{"name": "helpers", "mountPath": HELPERS_MOUNT}]
    mounts += [
        _shared(SharedFolder(path=mount)) for mount in MOUNTS if any(path.startswith(f"{mount}/") for path in made)
    ]
    if job.code:
        mounts.append({"name": "code", "mountPath": WORKSPACE})
    command = ("-m", "trainer.helpers.install", "--into", HELPERS, *folders, *clients, *code)
    return _tools_container(job, HELPERS_CONTAINER, command, mounts)


def _packages(job: Job) -> list[dict[str, Any]]:
    """Init containers that fetch required packages in the program's image, and install them for all runs.

    Packages may run code while they are resolved and built, so the first one writes into its run's folder only. The
    second one runs no code of a package, and is the only one that writes to the shared packages (decision 92).
    """
    plan = fetch_plan(job.plan)
    if plan is None or plan.fetch is None:
        return []
    code = plan.fetch.code
    fetching = {
        **_container(job),
        "name": FETCH_CONTAINER,
        "command": ["python", HELPERS, "supervisor", "--", *map(_literal, to_words(plan))],
    }
    sharing = (
        "-m",
        "trainer.helpers.share_packages",
        "--own",
        str(code.packages),
        "--store",
        str(code.shared_packages),
    )
    return [
        fetching,
        _tools_container(job, SHARE_CONTAINER, sharing, [_shared(SharedFolder(path=CACHE_MOUNT))]),
    ]


def _tools_container(job: Job, name: str, words: Sequence[str], mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """An init container of Trainflow's own image."""
    environment = {"PYTHONUNBUFFERED": "1", variables.RESULT_FILE: RESULT_FILE}
    return {
        "name": name,
        "image": job.helpers_image,
        "command": ["python", *words],
        "env": [{"name": name, "value": value} for name, value in sorted(environment.items())],
        "resources": {"requests": dict(SMALL_REQUESTS), "limits": dict(SMALL_LIMITS)},
        "securityContext": _confined(writable_root=False),
        **TERMINATION_MESSAGE,
        "volumeMounts": mounts,
    }


def _confined(*, writable_root: bool) -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": not writable_root,
    }


def _environment(job: Job) -> list[dict[str, Any]]:
    environment: list[dict[str, Any]] = [
        {"name": name, "value": _literal(value)} for name, value in sorted(job.environment.items())
    ]
    for name, secret in sorted(job.secrets.items()):
        if secret.name is not None:
            reference = {"name": secret.name, "key": secret.key}
            environment.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    if job.ref.elastic:
        environment.append({"name": variables.POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    return environment


def _mounts(job: Job) -> list[dict[str, Any]]:
    mounts = [_shared(folder) for folder in job.folders]
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108  (the container's own)
    if not job.writable_root:
        mounts.append({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108  (the container's own)
    if _has_scratch(job):
        mounts.append({"name": "scratch", "mountPath": SCRATCH_MOUNT})
    if job.local_checkpoints_gib is not None:
        mounts.append({"name": LOCAL_CHECKPOINTS, "mountPath": LOCAL_CHECKPOINTS_MOUNT})
    for name, volume in _further_volumes(job):
        read_only = volume.read_only or volume.config_map is not None
        mounts.append({"name": name, "mountPath": volume.mount, **({"readOnly": True} if read_only else {})})
    if job.helpers_image:
        mounts.append({"name": "helpers", "mountPath": HELPERS_MOUNT, "readOnly": True})
    if job.code:
        mounts.append({"name": "code", "mountPath": WORKSPACE})
    return mounts


# Decision 51: a pod mounts only the folders that its job may read or write.
def _shared(folder: SharedFolder) -> dict[str, Any]:
    """Mount of a folder of the shared file system, at the same path in the pod."""
    mount = {"name": "shared", "mountPath": folder.path, "subPath": folder.path.lstrip("/")}
    return {**mount, **({"readOnly": True} if folder.read_only else {})}


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
    """Whole chips or GPUs that cover the processes; all EFA interfaces, and GPUs' huge pages, when the gang spans
    nodes."""
    devices = {resource: str(count) for resource, count in instance.devices_of(processes_per_node).items()}
    if instance.uses_efa(num_nodes):
        devices[EFA_INTERFACE] = str(instance.efa_interfaces)
    if huge_pages_mib := instance.huge_pages_of_pod_mib(num_nodes):
        devices[HUGE_PAGES] = f"{huge_pages_mib}Mi"
    return devices
