"""Pods."""

from __future__ import annotations

from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.resources.pod_defaults import default_pod, prepare_pod
from kubetwin.resources.pod_validation import validate_pod, validate_pod_update
from kubetwin.resources.resource import STATUS, Column, Resource, Subresource


def grace_seconds(pod: Object, wanted: int | None) -> int:
    """Seconds until a deleted pod is killed: none for one that never ran or has finished."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    return wanted if wanted is not None else int(pod["spec"]["terminationGracePeriodSeconds"])


def _containers(pod: Object) -> list[Object]:
    return pod["status"].get("containerStatuses") or []


def _ready(pod: Object) -> str:
    return f"{sum(c.get('ready', False) for c in _containers(pod))}/{len(pod['spec']['containers'])}"


def displayed_status(pod: Object) -> str:
    """The text in kubectl's STATUS column."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    word = str(pod["status"].get("reason") or pod["status"].get("phase", ""))
    for container in _containers(pod):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        word = waiting.get("reason") or ended.get("reason") or word
    return word


def _restarts(pod: Object) -> str:
    return str(sum(c.get("restartCount", 0) for c in _containers(pod)))


def _age(obj: Object) -> str:
    return times.age(obj["metadata"].get("creationTimestamp", ""), times.now())


RESOURCES = (
    Resource(
        kind="Pod",
        plural="pods",
        type_name="io.k8s.api.core.v1.Pod",
        short_names=("po",),
        categories=("all",),
        storage_hash="xPOwRZ+Yhw8=",
        has_generation=True,
        returns_deleted=True,
        fields=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        subresources=(
            STATUS,
            Subresource("binding", ("create",), "Binding"),
            Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
            Subresource("log", ("get",)),
        ),
        default=default_pod,
        prepare=prepare_pod,
        validate=validate_pod,
        validate_update=validate_pod_update,
        grace_seconds=grace_seconds,
        columns=(
            Column("Name", lambda pod: pod["metadata"]["name"], format="name"),
            Column("Ready", _ready),
            Column("Status", displayed_status),
            Column("Restarts", _restarts),
            Column("Age", _age),
            Column("IP", lambda pod: pod["status"].get("podIP") or "<none>", priority=1),
            Column("Node", lambda pod: pod["spec"].get("nodeName") or "<none>", priority=1),
            Column("Nominated Node", lambda pod: pod["status"].get("nominatedNodeName") or "<none>", priority=1),
            Column("Readiness Gates", lambda _pod: "<none>", priority=1),
        ),
    ),
)
