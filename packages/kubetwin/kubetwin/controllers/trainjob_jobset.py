"""The JobSet of a TrainJob, made of its runtime and of what it changes in it. Pure.

After Kubeflow Trainer 2.3.0 (github.com/kubeflow/trainer): pkg/runtime/core/trainingruntime.go, the plugins `torch`,
`plainml` and `jobset` in pkg/runtime/framework/plugins.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from kubetwin.controllers.owners import owner_reference
from kubetwin.model.errors import Object
from kubetwin.model.patches import strategic_merge
from kubetwin.model.quantity import parse_quantity
from kubetwin.resources.structural import reference

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER, NODE = "trainer", "node"
PORT = 29500

_JOB_TEMPLATE = reference("io.k8s.api.batch.v1.JobTemplateSpec")
_INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
_OTHER_POLICIES = ("mpi", "flux", "jax", "xgboost")


class UnsupportedRuntime(Exception):
    """The runtime has a policy that this controller does not carry out."""


def make_jobset(trainjob: Object, runtime: Object) -> Object:
    """The JobSet of a TrainJob.

    Raises:
        UnsupportedRuntime: If the runtime is not for torch or a plain program.
    """
    spec = runtime.get("spec") or {}
    policy, template = spec.get("mlPolicy") or {}, spec.get("template") or {}
    _expect_supported(spec, policy)
    jobs = _patched(trainjob, (template.get("spec") or {}).get("replicatedJobs") or [])
    trainer = trainjob["spec"].get("trainer") or {}
    for job in jobs:
        _complete(job, trainjob, policy)
    if "torch" in policy:
        _add_torch(jobs, trainjob, policy)
    for job in jobs:
        if _ancestor(job) == TRAINER:
            _set_program(job, trainer)
        else:
            _set_initializer(job, trainjob["spec"].get("initializer") or {})
    return {
        "metadata": {
            "name": trainjob["metadata"]["name"],
            **_marks(trainjob, template.get("metadata") or {}),
            "ownerReferences": [owner_reference(trainjob)],
        },
        "spec": {
            **copy.deepcopy(template.get("spec") or {}),
            "replicatedJobs": jobs,
            "suspend": bool(trainjob["spec"].get("suspend")),
        },
    }


def _expect_supported(spec: Object, policy: Object) -> None:
    for name in _OTHER_POLICIES:
        if name in policy:
            raise UnsupportedRuntime(f"this cluster runs no TrainJobs with the ML policy {name}: use torch")
    if spec.get("podGroupPolicy"):
        raise UnsupportedRuntime("this cluster makes no PodGroups for TrainJobs: leave podGroupPolicy out")


def _patches(trainjob: Object) -> Iterator[Object]:
    """Templates of the runtime patches, in their order."""
    for patch in trainjob["spec"].get("runtimePatches") or []:
        template = (patch.get("trainingRuntimeSpec") or {}).get("template")
        if template:
            yield template


def _marks(trainjob: Object, metadata: Object) -> Object:
    """Labels and annotations of the JobSet: those of the template and of the patches, not of the TrainJob."""
    found: Object = {}
    for kind in ("labels", "annotations"):
        merged = dict(metadata.get(kind) or {})
        for template in _patches(trainjob):
            merged |= (template.get("metadata") or {}).get(kind) or {}
        if merged:
            found[kind] = merged
    return found


def _patched(trainjob: Object, jobs: Sequence[Object]) -> list[Object]:
    """The runtime's replicated jobs with the patches applied, in the runtime's order."""
    patched = copy.deepcopy(list(jobs))
    for template in _patches(trainjob):
        for patch in (template.get("spec") or {}).get("replicatedJobs") or []:
            for job in patched:
                if job["name"] == patch["name"]:
                    job["template"] = strategic_merge(job["template"], patch.get("template") or {}, _JOB_TEMPLATE)
    return patched


def _ancestor(job: Object) -> str | None:
    labels = (job["template"].get("metadata") or {}).get("labels") or {}
    found: str | None = labels.get(ANCESTOR)
    return found


def _pod(job: Object) -> Object:
    found: Object = job["template"]["spec"]["template"].setdefault("spec", {})
    return found


def _containers(job: Object, *names: str) -> Iterator[Object]:
    """Containers and init containers of these names."""
    for kind in ("containers", "initContainers"):
        yield from (each for each in _pod(job).get(kind) or [] if each["name"] in names)


def _complete(job: Object, trainjob: Object, policy: Object) -> None:
    """Set the numbers of pods and the trainer's resources, which replace those of the runtime one by one."""
    trainer = trainjob["spec"].get("trainer") or {}
    spec = job["template"]["spec"]
    count = spec.get("parallelism", 1)
    if _ancestor(job) == TRAINER:
        if policy:
            count = policy.get("numNodes", 1)
        count = trainer.get("numNodes", count)
        for container in _pod(job)["containers"] if policy and trainer.get("resourcesPerNode") else ():
            if container["name"] == NODE:
                container["resources"] = _merged(container.get("resources") or {}, trainer["resourcesPerNode"])
    spec["parallelism"] = spec["completions"] = max(count, 1)
    if _ancestor(job) in (TRAINER, *_INITIALIZERS):
        job["replicas"] = 1


def _merged(resources: Object, changes: Object) -> Object:
    kinds = [kind for kind in ("limits", "requests") if kind in resources or kind in changes]
    return {**resources, **{kind: {**resources.get(kind, {}), **changes.get(kind, {})} for kind in kinds}}


def _add_torch(jobs: Sequence[Object], trainjob: Object, policy: Object) -> None:
    """Add torchrun's variables and port to the trainer's container, and to others that the policy names."""
    trainers = [job for job in jobs if _ancestor(job) == TRAINER]
    trainer = trainjob["spec"].get("trainer")
    count = trainers[0]["template"]["spec"]["parallelism"] if trainers else 1
    name = trainjob["metadata"]["name"]
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    variables: list[Object] = [
        {"name": "PET_NNODES", "value": str(count)},
        {"name": "PET_NPROC_PER_NODE", "value": _processes(trainers, trainer or {})},
        {"name": "PET_NODE_RANK", "valueFrom": index},
        {"name": "PET_MASTER_ADDR", "value": f"{name}-{NODE}-0-0.{name}"},
        {"name": "PET_MASTER_PORT", "value": str(PORT)},
    ]
    if trainer is not None:
        for container in [each for job in trainers for each in _pod(job)["containers"] if each["name"] == NODE]:
            _upsert(container, "env", trainer.get("env") or [], "name")
            _upsert(container, "env", variables, "name")
            _upsert(container, "ports", [{"containerPort": PORT}], "containerPort")
    for target in ((policy["torch"] or {}).get("envInjection") or {}).get("targets") or []:
        for job in jobs:
            if job["name"] == target["jobName"]:
                for container in _containers(job, *target["containerNames"]):
                    _upsert(container, "env", variables, "name")


def _processes(trainers: Sequence[Object], trainer: Object) -> str:
    """Value of PET_NPROC_PER_NODE: as the TrainJob says, `auto` with GPUs, otherwise the number of CPUs."""
    if "numProcPerNode" in trainer:
        return str(trainer["numProcPerNode"])
    containers = [each for job in trainers for each in _pod(job)["containers"] if each["name"] == NODE]
    of_runtime = (containers[0].get("resources") or {}) if containers else {}
    resources = trainer.get("resourcesPerNode") or of_runtime
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if any("gpu" in name.lower() for name in (*requests, *limits)):
        return "auto"
    cpus = requests.get("cpu") or limits.get("cpu")
    return str(max(1, ceil(parse_quantity(cpus)) if cpus else 0))


def _set_program(job: Object, trainer: Object) -> None:
    for container in _pod(job)["containers"]:
        if container["name"] == NODE:
            container |= {key: copy.deepcopy(trainer[key]) for key in ("image", "command", "args") if key in trainer}
            _upsert(container, "env", trainer.get("env") or [], "name")


def _set_initializer(job: Object, initializers: Object) -> None:
    """Tell an initializer what to load."""
    name = _ancestor(job) or ""
    wanted = initializers.get(_INITIALIZERS.get(name, ""))
    if not wanted:
        return
    for container in _pod(job)["containers"]:
        if container["name"] == name:
            uri = [{"name": "STORAGE_URI", "value": wanted["storageUri"]}] if "storageUri" in wanted else []
            _upsert(container, "env", [*uri, *(wanted.get("env") or [])], "name")
            if "secretRef" in wanted:
                secret = {"secretRef": {"name": wanted["secretRef"]["name"]}}
                container["envFrom"] = [*(container.get("envFrom") or []), secret]


def _upsert(container: Object, field: str, items: Sequence[Object], key: str) -> None:
    """Replace the items with the same key, and append the others."""
    found: list[Any] = list(container.get(field) or [])
    for item in items:
        place = next((n for n, each in enumerate(found) if each.get(key) == item[key]), len(found))
        found[place : place + 1] = [copy.deepcopy(item)]
    if found:
        container[field] = found
