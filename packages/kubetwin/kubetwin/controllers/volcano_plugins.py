"""Volcano's job plugins, as far as they are imitated: env, svc and pytorch. Pure.

A plugin may change a pod before it is made and own objects beside the pods; those go when the job is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubetwin.controllers.owners import owner_reference
from kubetwin.model.errors import Object

Arguments = Sequence[str]

CONFIG_MOUNT = "/etc/volcano"
PORT_NAME = "pytorchjob-port"


def _no_objects(_job: Object, _arguments: Arguments) -> Mapping[str, Object]:
    return {}


@dataclass(frozen=True)
class Plugin:
    """Effects of one plugin."""

    on_pod: Callable[[Object, Object, Arguments], None]
    objects: Callable[[Object, Arguments], Mapping[str, Object]] = _no_objects
    """Objects of the job, by resource."""


def unknown_plugins(job: Object) -> list[str]:
    """Plugins of the job that are not imitated here."""
    return sorted(set(job["spec"].get("plugins") or {}) - set(PLUGINS))


def _tasks(job: Object) -> list[tuple[str, int]]:
    tasks = job["spec"]["tasks"]
    return [(task.get("name", f"default{n}"), int(task.get("replicas", 1))) for n, task in enumerate(tasks)]


def _hosts(job: Object, task: str, replicas: int) -> list[str]:
    name = job["metadata"]["name"]
    return [f"{name}-{task}-{index}.{name}" for index in range(replicas)]


def _containers(pod: Object) -> list[Object]:
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def _add_variables(pod: Object, variables: Mapping[str, Any]) -> None:
    for container in _containers(pod):
        container.setdefault("env", []).extend({"name": name, **value} for name, value in variables.items())


def _values(**variables: str) -> dict[str, Object]:
    return {name: {"value": value} for name, value in variables.items()}


def _place(pod: Object) -> tuple[str, int]:
    """Task and index of a pod."""
    labels = pod["metadata"]["labels"]
    return labels["volcano.sh/task-spec"], int(labels["volcano.sh/task-index"])


# -- env ------------------------------------------------------------------------------------------------------------


def _env_pod(_job: Object, pod: Object, _arguments: Arguments) -> None:
    _, index = _place(pod)
    _add_variables(pod, _values(VK_TASK_INDEX=str(index), VC_TASK_INDEX=str(index)))


# -- svc ------------------------------------------------------------------------------------------------------------


def _config_name(job: Object) -> str:
    return f"{job['metadata']['name']}-svc"


def _host_variables(job: Object) -> dict[str, str]:
    """Comma-separated hosts and their number, for each task."""
    variables: dict[str, str] = {}
    for task, replicas in _tasks(job):
        prefix = f"VC_{task.upper().replace('-', '_')}"
        variables |= {f"{prefix}_HOSTS": ",".join(_hosts(job, task, replicas)), f"{prefix}_NUM": str(replicas)}
    return variables


def _svc_pod(job: Object, pod: Object, _arguments: Arguments) -> None:
    spec, config = pod["spec"], _config_name(job)
    spec.setdefault("hostname", pod["metadata"]["name"])
    spec.setdefault("subdomain", job["metadata"]["name"])
    _add_variables(
        pod,
        {name: {"valueFrom": {"configMapKeyRef": {"name": config, "key": name}}} for name in _host_variables(job)},
    )
    spec.setdefault("volumes", []).append({"name": config, "configMap": {"name": config}})
    for container in _containers(pod):
        container.setdefault("volumeMounts", []).append({"name": config, "mountPath": CONFIG_MOUNT})


def _svc_objects(job: Object, arguments: Arguments) -> Mapping[str, Object]:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    files = {f"{task}.host": "\n".join(_hosts(job, task, replicas)) for task, replicas in _tasks(job)}
    service: Object = {
        "clusterIP": "None",
        "selector": {"volcano.sh/job-name": name, "volcano.sh/job-namespace": namespace},
    }
    if "--publish-not-ready-addresses=true" in arguments or "--publish-not-ready-addresses" in arguments:
        service["publishNotReadyAddresses"] = True
    return {
        "configmaps": {
            "metadata": {"name": _config_name(job), "ownerReferences": [owner_reference(job)]},
            "data": {**files, **_host_variables(job)},
        },
        "services": {"metadata": {"name": name, "ownerReferences": [owner_reference(job)]}, "spec": service},
    }


# -- pytorch --------------------------------------------------------------------------------------------------------


def _option(arguments: Arguments, name: str, default: str) -> str:
    prefix = f"--{name}="
    return next((a.removeprefix(prefix) for a in arguments if a.startswith(prefix)), default)


def _pytorch_pod(job: Object, pod: Object, arguments: Arguments) -> None:
    master, worker = _option(arguments, "master", "master"), _option(arguments, "worker", "worker")
    port = _option(arguments, "port", "23456")
    replicas, (task, index) = dict(_tasks(job)), _place(pod)
    if master not in replicas or task not in (master, worker):
        return
    rank = index if task == master else replicas[master] + index
    variables = _values(
        MASTER_ADDR=_hosts(job, master, 1)[0],
        MASTER_PORT=port,
        WORLD_SIZE=str(replicas[master] + replicas.get(worker, 0)),
        RANK=str(rank),
    )
    _add_variables(pod, variables)
    for container in pod["spec"]["containers"]:
        ports = container.setdefault("ports", [])
        if all(p.get("containerPort") != int(port) for p in ports):
            ports.append({"name": PORT_NAME, "containerPort": int(port)})


PLUGINS: Mapping[str, Plugin] = {
    "env": Plugin(_env_pod),
    "svc": Plugin(_svc_pod, _svc_objects),
    "pytorch": Plugin(_pytorch_pod),
}
