"""The container of a pod that runs the run's program, and its state. One reading for functions, client and page.

A cluster may inject containers: a service mesh or an agent adds them before or after ours, and as init containers that
keep running (`restartPolicy: Always`). The kubelet sorts `containerStatuses` by name (kubernetes
pkg/kubelet/kubelet_pods.go, `convertToAPIContainerStatuses`), so a position says nothing in either list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainflow.deployment.backends import KUBERNETES_KINDS, KubernetesKind
from trainflow.deployment.kubernetes_names import (
    BACKEND_LABEL,
    DEFAULT_CONTAINER_ANNOTATION,
    INIT_CONTAINERS,
    STAGE_LABEL,
)

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """The container that decides how a pod ended, and its newest state."""

    container: str
    """Name of the program's container, or of the init container that failed and kept it from starting."""
    state: Manifest
    """State as the API reports it. A container that is restarted has its last termination, too."""

    @property
    def ended(self) -> Manifest:
        """Its termination; empty while it runs or waits."""
        return self.state.get("terminated") or {}

    @property
    def running(self) -> Manifest:
        """Its state while it runs; empty otherwise."""
        return self.state.get("running") or {}

    @property
    def waiting(self) -> Manifest:
        """Its state while it waits; empty otherwise."""
        return self.state.get("waiting") or {}


def program_container(pod: Manifest) -> Manifest:
    """The container of the run's program in the pod's `spec`; empty for a pod without containers."""
    containers: Sequence[Manifest] = (pod.get("spec") or {}).get("containers") or ()
    name = _given_name(pod)
    first = next(iter(containers), {})
    return next((one for one in containers if one.get("name") == name), first)


def workload(pod: Manifest) -> Workload:
    """The container that decides how the pod ended, with its state."""
    failed = next((one for one in _init_statuses(pod) if _exit_code(one)), None)
    if failed is not None:
        return Workload(str(failed.get("name", "")), failed.get("state") or {})
    name, status = str(program_container(pod).get("name", "")), _program_status(pod)
    state, last = (status.get(key) or {} for key in ("state", "lastState"))
    if "waiting" in state and "terminated" in last:
        state = {**state, "terminated": last["terminated"]}
    return Workload(name, state)


def program_exit_code(pod: Manifest) -> int | None:
    """Exit code of the program's container; None while it runs, waits or is restarted."""
    return _exit_code(_program_status(pod))


def program_image(pod: Manifest) -> str:
    """Identity of the image that the program's container runs; empty before it is known."""
    return str(_program_status(pod).get("imageID") or "")


def phase(pod: Manifest) -> str:
    """The pod's phase as the program's container decides it: another one may keep the pod running after its end."""
    reported = str((pod.get("status") or {}).get("phase") or "Pending")
    code = program_exit_code(pod) if reported == "Running" else None
    return reported if code is None else "Failed" if code else "Succeeded"


def is_shared(pod: Manifest) -> bool:
    """Whether the pod has containers beside the program's."""
    return len((pod.get("spec") or {}).get("containers") or ()) > 1


def waiting_container(pod: Manifest) -> tuple[str | None, Manifest]:
    """Name and state of a container that waits, one with a message first, the program's before others."""
    found = [(name, state) for name, state in _waiting(pod) if state]
    return max(found, key=lambda each: bool(each[1].get("message")), default=(None, {}))


def is_injected(pod: Manifest, container: str | None) -> bool:
    """Whether the cluster added a container of this name: neither the program's nor our init container."""
    return container not in (None, *INIT_CONTAINERS, program_container(pod).get("name"))


def injected_failure(pod: Manifest) -> str | None:
    """The failure of a container that is not the program's, in a pod whose program succeeded; None without one."""
    if program_exit_code(pod) != 0:
        return None
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if is_injected(pod, one.get("name")) and (code := _exit_code(one)):
            return (
                f"The program ended with exit code 0, but the cluster's container '{one.get('name')}' in its pod ended "
                f"with {code}, which fails the pod."
            )
    return None


def disruption(pod: Manifest) -> Manifest | None:
    """The condition of a pod that the cluster ends; None for other pods.

    Kubernetes sets the condition `DisruptionTarget` on pods that a drain, a taint, preemption or garbage collection
    ends (Kubernetes documentation, "Pod disruption conditions").
    """
    conditions = (pod.get("status") or {}).get("conditions") or ()
    disrupted = (one for one in conditions if one.get("type") == "DisruptionTarget")
    return next((one for one in disrupted if one.get("status") == "True"), None)


def end_reason(pod: Manifest) -> str | None:
    """Reason of a pod's end: the kubelet's own, the container's if it names one, or that of a disruption."""
    ended, of_pod = workload(pod).ended.get("reason"), (pod.get("status") or {}).get("reason")
    if of_pod or ended not in (None, "", "Error", "Completed"):
        return str(of_pod or ended)
    return str((disruption(pod) or {}).get("reason") or "") or ended


def _given_name(pod: Manifest) -> str | None:
    metadata = pod.get("metadata") or {}
    labels = metadata.get("labels") or {}
    kinds: Mapping[str, KubernetesKind] = {str(name): kind for name, kind in KUBERNETES_KINDS.items()}
    kind, stage = kinds.get(labels.get(BACKEND_LABEL, "")), labels.get(STAGE_LABEL)
    if stage is None:
        named: str | None = (metadata.get("annotations") or {}).get(DEFAULT_CONTAINER_ANNOTATION)
        return named
    return str(stage) if kind is None else kind.container_name(stage)


def _program_status(pod: Manifest) -> Manifest:
    statuses: Sequence[Manifest] = (pod.get("status") or {}).get("containerStatuses") or ()
    if len(statuses) == 1 and not is_shared(pod):
        return statuses[0]
    name = program_container(pod).get("name")
    return next((one for one in statuses if one.get("name") == name), {})


def _init_statuses(pod: Manifest) -> Iterator[Manifest]:
    """Statuses of the init containers that end before the program starts: not of those that run beside it."""
    specs = (pod.get("spec") or {}).get("initContainers") or ()
    beside = {one.get("name") for one in specs if one.get("restartPolicy") == "Always"}
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        if status.get("name") not in beside:
            yield status


def _waiting(pod: Manifest) -> Iterator[tuple[str | None, Manifest]]:
    status, ours = pod.get("status") or {}, _program_status(pod)
    others = (one for one in status.get("containerStatuses") or () if one is not ours)
    for one in (*(status.get("initContainerStatuses") or ()), ours, *others):
        yield one.get("name"), (one.get("state") or {}).get("waiting") or {}


def _exit_code(status: Manifest) -> int | None:
    code: int | None = ((status.get("state") or {}).get("terminated") or {}).get("exitCode")
    return code
