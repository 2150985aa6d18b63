"""The status of a pod, from the states of its containers. Pure.

Phases, conditions and reasons follow the kubelet (pkg/kubelet: getPhase and status/generate.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from kubetwin.model import times
from kubetwin.node.rewriting import LOOPBACK

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True)
class Waiting:
    """The container has not been started, or not again."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    """The container's processes run."""

    started_at: datetime


@dataclass(frozen=True, kw_only=True)
class Terminated:
    """The container's processes have ended."""

    exit_code: int
    reason: str
    message: str = ""
    started_at: datetime
    finished_at: datetime


State = Waiting | Running | Terminated


@dataclass(frozen=True, kw_only=True)
class ContainerStatus:
    """One container of a pod, as it is now."""

    name: str
    image: str
    state: State
    last_termination: Terminated | None = None
    """State of the run before this one."""
    restart_count: int = 0
    started: bool = True
    """Whether a running container has passed its startup probe."""
    ready: bool = True
    """Whether a running container has passed its readiness probe last."""
    sidecar: bool = False
    """Whether it is an init container that runs beside the others (`restartPolicy: Always`)."""

    @property
    def initialized(self) -> bool:
        """Whether an init container lets the next one start: it has succeeded, or as a sidecar has started."""
        if not self.sidecar:
            return self.succeeded
        if isinstance(self.state, Running):
            return self.started
        return isinstance(self.state, Terminated) or self.last_termination is not None

    @property
    def is_ready(self) -> bool:
        """Whether it runs and is ready."""
        return isinstance(self.state, Running) and self.ready

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return isinstance(self.state, Terminated) and self.state.exit_code == 0


@dataclass(frozen=True, kw_only=True)
class PodState:
    """Facts for computing the status of a pod."""

    uid: str
    generation: int = 1
    restart_policy: str = "Always"
    started_at: datetime
    init_containers: Sequence[ContainerStatus] = ()
    containers: Sequence[ContainerStatus] = ()
    ending: bool = False
    """Whether no container is started any more: the pod is deleted, over its deadline, or its node stops."""
    reason: str = ""
    """Reason why the node ended the pod, such as DeadlineExceeded; its final phase is then Failed."""
    message: str = ""


Conditions = Mapping[str, Mapping[str, Any]]
"""Conditions of a pod by their type."""


def phase_of(pod: PodState) -> Phase:
    """The pod's phase.

    A container that waits for its next start counts by how it ended last.
    """
    everything = [*pod.init_containers, *pod.containers]
    none_runs = not any(isinstance(container.state, Running) for container in everything)
    if pod.ending and none_runs:
        return _final_phase(pod, everything)
    if not all(container.initialized for container in pod.init_containers):
        once = (c for c in pod.init_containers if not c.sidecar)
        failed = any(isinstance(c.state, Terminated) and c.state.exit_code != 0 for c in once)
        return "Failed" if failed and pod.restart_policy == "Never" else "Pending"
    if any(isinstance(c.state, Waiting) and c.last_termination is None for c in pod.containers):
        return "Pending"
    sidecar_runs = any(isinstance(c.state, Running) for c in pod.init_containers if c.sidecar)
    if sidecar_runs or not all(isinstance(container.state, Terminated) for container in pod.containers):
        return "Running"
    if pod.restart_policy == "Always":
        return "Running"
    if all(container.succeeded for container in pod.containers):
        return "Succeeded"
    return "Failed" if pod.restart_policy == "Never" else "Running"


def _final_phase(pod: PodState, everything: Sequence[ContainerStatus]) -> Phase:
    if pod.reason or not all(container.succeeded or container.sidecar for container in everything):
        return "Failed"
    return "Succeeded"


def pod_status(pod: PodState, reported: Conditions, now: datetime) -> dict[str, Any]:
    """The pod's status.

    Args:
        pod: The pod's state.
        reported: Conditions reported before: those that hold on keep the time of their change.
        now: Time of the other conditions' change.
    """
    phase = phase_of(pod)
    status: dict[str, Any] = {
        "observedGeneration": pod.generation,
        "phase": phase,
        "conditions": _conditions(pod, phase, reported, now),
        "hostIP": LOOPBACK,
        "hostIPs": [{"ip": LOOPBACK}],
        "podIP": LOOPBACK,
        "podIPs": [{"ip": LOOPBACK}],
        "startTime": times.seconds(pod.started_at),
        # Sorted as the kubelet does (kubernetes pkg/kubelet/kubelet_pods.go, convertToAPIContainerStatuses); the
        # statuses of init containers keep the order of the spec.
        "containerStatuses": [
            _container_status(pod.uid, container) for container in sorted(pod.containers, key=lambda each: each.name)
        ],
    }
    if pod.init_containers:
        status["initContainerStatuses"] = [
            _container_status(pod.uid, container, init=True) for container in pod.init_containers
        ]
    if pod.reason and phase == "Failed":
        status |= {"reason": pod.reason, "message": pod.message}
    return status


def by_type(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The conditions of a pod's status by their type."""
    return {condition["type"]: condition for condition in status.get("conditions") or []}


def strategic_patch(uid: str, status: Mapping[str, Any], reported: Conditions) -> dict[str, Any]:
    """The strategic merge patch that sets a pod's status.

    Conditions are merged by their type, so that those of others (PodScheduled) stay as they are; what a
    condition no longer says has to be removed by name. The uid keeps the patch from a namesake.
    """
    conditions = [
        condition
        | {
            key: None
            for key in ("reason", "message")
            if key in reported.get(condition["type"], {}) and key not in condition
        }
        for condition in status["conditions"]
    ]
    return {"metadata": {"uid": uid}, "status": {**status, "conditions": conditions}}


def _container_status(uid: str, container: ContainerStatus, *, init: bool = False) -> dict[str, Any]:
    container_id = f"process://{uid}/{container.name}"
    running = isinstance(container.state, Running)
    created = not isinstance(container.state, Waiting) or container.last_termination is not None
    return {
        "name": container.name,
        "state": _state(container.state, container_id),
        "lastState": _state(container.last_termination, container_id) if container.last_termination else {},
        "ready": container.succeeded if init and not container.sidecar else container.is_ready,
        "restartCount": container.restart_count,
        "image": container.image,
        "imageID": f"process://{container.image}" if created else "",
        **({"containerID": container_id} if created else {}),
        "started": running and container.started,
    }


def _state(state: State, container_id: str) -> dict[str, Any]:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason, **({"message": state.message} if state.message else {})}}
    if isinstance(state, Running):
        return {"running": {"startedAt": times.seconds(state.started_at)}}
    return {
        "terminated": {
            "exitCode": state.exit_code,
            "reason": state.reason,
            **({"message": state.message} if state.message else {}),
            "startedAt": times.seconds(state.started_at),
            "finishedAt": times.seconds(state.finished_at),
            "containerID": container_id,
        }
    }


def _conditions(pod: PodState, phase: Phase, reported: Conditions, now: datetime) -> list[dict[str, Any]]:
    wanted = {
        "PodReadyToStartContainers": (phase in ("Pending", "Running"), "", ""),
        "Initialized": _initialized(pod, phase),
        "Ready": _readiness(pod, phase),
        "ContainersReady": _readiness(pod, phase),
    }
    conditions = []
    for kind, (holds, reason, message) in wanted.items():
        before = reported.get(kind, {})
        state = "True" if holds else "False"
        condition = {
            "type": kind,
            "observedGeneration": pod.generation,
            "status": state,
            "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == state else times.seconds(now),
        }
        conditions.append(condition | {key: text for key, text in (("reason", reason), ("message", message)) if text})
    return conditions


def _initialized(pod: PodState, phase: Phase) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return True, "PodCompleted", ""
    incomplete = [container.name for container in pod.init_containers if not container.initialized]
    if incomplete:
        names = " ".join(incomplete)
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{names}]"
    return True, "", ""


def _readiness(pod: PodState, phase: Phase) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == "Failed":
        return False, "PodFailed", ""
    beside = [container for container in pod.init_containers if container.sidecar]
    unready = [container.name for container in [*beside, *pod.containers] if not container.is_ready]
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""
