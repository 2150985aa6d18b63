"""Pod Security admission: refuses pods beyond the level that the labels of their namespace enforce."""

from __future__ import annotations

from kubetwin.controllers.events import EventRecorder
from kubetwin.model.errors import Object, forbidden
from kubetwin.resources.namespaces import ENFORCE
from kubetwin.resources.pod_security import violations
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    cluster.admission.append(lambda resource, obj: _check(cluster, resource, obj))


def _check(cluster: Cluster, resource: Resource, obj: Object) -> None:
    if resource.key != "pods":
        return
    namespace = cluster.store.get("namespaces", "", obj["metadata"]["namespace"]) or {"metadata": {}}
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get(ENFORCE, "privileged")
    if faults := violations(obj, level):
        version = labels.get(f"{ENFORCE}-version", "latest")
        detail = f'violates PodSecurity "{level}:{version}": {faults}'
        raise forbidden(resource.group_resource, obj["metadata"].get("name", ""), detail)
