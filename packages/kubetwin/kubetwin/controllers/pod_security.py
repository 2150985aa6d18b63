"""Pod Security admission: refuses pods beyond the level that the labels of their namespace enforce, and warns of pods
and Jobs beyond the level that these warn of."""

from __future__ import annotations

from kubetwin.controllers.events import EventRecorder
from kubetwin.model.errors import Object, forbidden
from kubetwin.resources.namespaces import ENFORCE, WARN
from kubetwin.resources.pod_security import violations
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    cluster.admission.append(lambda resource, obj: _check(cluster, resource, obj))


def warnings_of(cluster: Cluster, resource: Resource, obj: Object) -> list[str]:
    """Warnings about a new pod, or a written Job; templates of custom kinds are not checked."""
    template = {"pods": obj, "jobs.batch": (obj.get("spec") or {}).get("template")}.get(resource.key)
    if not template:
        return []
    found = _faults(cluster, obj["metadata"].get("namespace", ""), template, WARN)
    return [f"would violate PodSecurity {found}"] if found else []


def _check(cluster: Cluster, resource: Resource, obj: Object) -> None:
    if resource.key != "pods":
        return
    if found := _faults(cluster, obj["metadata"]["namespace"], obj, ENFORCE):
        raise forbidden(resource.group_resource, obj["metadata"].get("name", ""), f"violates PodSecurity {found}")


def _faults(cluster: Cluster, namespace: str, pod: Object, mode: str) -> str:
    """The level of a namespace in a mode, and the pod's faults at it; "" without faults."""
    found = cluster.store.get("namespaces", "", namespace) or {"metadata": {}}
    labels = found["metadata"].get("labels") or {}
    level, version = labels.get(mode, "privileged"), labels.get(f"{mode}-version", "latest")
    faults = violations(pod, level)
    return f'"{level}:{version}": {faults}' if faults else ""
