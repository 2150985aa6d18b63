"""Pods."""

from __future__ import annotations

from kubetwin.model.conditions import holds
from kubetwin.model.errors import Object
from kubetwin.resources.pod_defaults import default_pod, prepare_pod
from kubetwin.resources.pod_validation import validate_pod, validate_pod_update
from kubetwin.resources.resource import AGE, NAME, STATUS, Column, Resource, Subresource


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
    """The text in kubectl's STATUS column (pkg/printers/internalversion: printPod)."""
    status, leaving = pod["status"], pod["metadata"].get("deletionTimestamp")
    if leaving and status.get("reason") == "NodeLost":
        return "Unknown"
    if leaving and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    word = "" if holds(status, "Initialized") else _initialization(pod)
    return word or _run_status(pod)


def _run_status(pod: Object) -> str:
    status = pod["status"]
    word = str(status.get("reason") or status.get("phase", ""))
    if any(c.get("reason") == "SchedulingGated" for c in status.get("conditions") or []):
        word = "SchedulingGated"
    for container in reversed(_containers(pod)):
        word = _state_word(container) or word
    if word == "Completed" and any(c.get("ready") and "running" in (c.get("state") or {}) for c in _containers(pod)):
        return "Running" if holds(status, "Ready") else "NotReady"
    return word


def _initialization(pod: Object) -> str:
    """The word while init containers run; "" when all of them have succeeded."""
    containers = pod["status"].get("initContainerStatuses") or []
    for place, container in enumerate(containers):
        state = container.get("state") or {}
        if "terminated" in state and state["terminated"].get("exitCode") == 0:
            continue
        word = _state_word(container)
        if word and word != "PodInitializing":
            return f"Init:{word}"
        return f"Init:{place}/{len(pod['spec'].get('initContainers') or [])}"
    return ""


def _state_word(container: Object) -> str:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    word = str(waiting.get("reason") or ended.get("reason") or "")
    return word or (f"ExitCode:{ended['exitCode']}" if ended else "")


def _restarts(pod: Object) -> str:
    return str(sum(c.get("restartCount", 0) for c in _containers(pod)))


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
            NAME,
            Column("Ready", _ready),
            Column("Status", displayed_status),
            Column("Restarts", _restarts),
            AGE,
            Column("IP", lambda pod: pod["status"].get("podIP") or "<none>", priority=1),
            Column("Node", lambda pod: pod["spec"].get("nodeName") or "<none>", priority=1),
            Column("Nominated Node", lambda pod: pod["status"].get("nominatedNodeName") or "<none>", priority=1),
            Column("Readiness Gates", lambda _pod: "<none>", priority=1),
        ),
    ),
)
