"""What a process node says about itself. Pure."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubetwin.model import times
from kubetwin.node.rewriting import LOOPBACK
from trainflow.models.daemon_sets import on_node
from trainflow.models.instances import INSTANCE_TYPE_LABEL, INSTANCE_TYPES, SYSTEM_INSTANCE, InstanceType
from trainflow.models.node_room import room_for_pods

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
"""How long the control plane believes in a node after its last heartbeat (the kubelet's default)."""

_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class UnknownInstanceType(Exception):
    """No such instance type is known; the text lists those that are."""


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A node as it is asked for."""

    name: str
    instance_type: InstanceType
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


def instance_type_named(name: str) -> InstanceType:
    """The instance type of that name.

    Raises:
        UnknownInstanceType: If there is none.
    """
    known = {**INSTANCE_TYPES, SYSTEM_INSTANCE.name: SYSTEM_INSTANCE}
    if name not in known:
        raise UnknownInstanceType(f"instance type {name!r} is not known; choose one of {', '.join(sorted(known))}")
    return known[name]


def parse_taint(text: str) -> dict[str, str]:
    """A taint written as `key=value:Effect` or `key:Effect`.

    Raises:
        ValueError: If it is written otherwise.
    """
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or effect not in _TAINT_EFFECTS:
        raise ValueError(
            f"taint {text!r} is not of the form key=value:Effect, Effect one of {', '.join(_TAINT_EFFECTS)}"
        )
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def node_object(spec: NodeSpec) -> dict[str, Any]:
    """The Node to register, without its status."""
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/arch": _architecture(),
        "kubernetes.io/os": platform.system().lower(),
        INSTANCE_TYPE_LABEL: spec.instance_type.name,
        **spec.labels,
    }
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": spec.name, "labels": labels}}
    if spec.taints:
        node["spec"] = {"taints": [dict(taint) for taint in spec.taints]}
    return node


def capacity(instance: InstanceType) -> dict[str, str]:
    """Everything the instance has."""
    return {
        "cpu": str(instance.vcpus),
        "memory": f"{instance.memory_gib}Gi",
        "pods": str(instance.max_pods),
        **{resource: str(count) for resource, count in instance.devices.items()},
    }


def allocatable(instance: InstanceType) -> dict[str, str]:
    """What pods can share: as on EKS, less the daemon sets' pods and requests, which the twin does not run."""
    room = room_for_pods(instance)
    return capacity(instance) | {
        "cpu": f"{room.millicpu}m",
        "memory": f"{room.memory_mib}Mi",
        "pods": str(instance.max_pods - len(on_node(instance))),
    }


def node_status(spec: NodeSpec, kubelet_port: int, boot_id: str, since: datetime, now: datetime) -> dict[str, Any]:
    """The status of a node that is ready."""
    return {
        "capacity": capacity(spec.instance_type),
        "allocatable": allocatable(spec.instance_type),
        "addresses": [
            {"type": "InternalIP", "address": LOOPBACK},
            {"type": "Hostname", "address": spec.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        "nodeInfo": _node_info(boot_id),
        "conditions": [
            _condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
                since,
                now,
            ),
            _condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", since, now),
            _condition(
                "PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available", since, now
            ),
            _condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", since, now),
        ],
    }


def lease(name: str, now: datetime) -> dict[str, Any]:
    """The heartbeat: a Lease of the node's name."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": times.micros(now),
        },
    }


def _condition(kind: str, status: str, reason: str, message: str, since: datetime, now: datetime) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": times.seconds(since),
        "lastHeartbeatTime": times.seconds(now),
    }


def _node_info(boot_id: str) -> dict[str, str]:
    return {
        "architecture": _architecture(),
        "operatingSystem": platform.system().lower(),
        "kernelVersion": platform.release(),
        "osImage": platform.system(),
        "containerRuntimeVersion": "process://1",
        "kubeletVersion": "v1.36.0-trainflow",
        "kubeProxyVersion": "",
        "bootID": boot_id,
        "machineID": boot_id,
        "systemUUID": boot_id,
    }


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())
