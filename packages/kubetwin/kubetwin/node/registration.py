"""A process node's Node object, status and lease, and their removal."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubetwin.client import ApiClient, ApiUnreachable, RequestRefused
from kubetwin.model import times
from kubetwin.node.rewriting import LOOPBACK
from kubetwin.node.shape import NodeShape

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
"""Seconds after its last heartbeat while the control plane considers a node as ready (the kubelet's default)."""

_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A node to register."""

    name: str
    shape: NodeShape


def node_object(spec: NodeSpec) -> dict[str, Any]:
    """The Node to register, without its status."""
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/arch": _architecture(),
        "kubernetes.io/os": platform.system().lower(),
        **spec.shape.labels,
    }
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": spec.name, "labels": labels}}
    if spec.shape.taints:
        node["spec"] = {"taints": [dict(taint) for taint in spec.shape.taints]}
    return node


def node_status(spec: NodeSpec, kubelet_port: int, boot_id: str, since: datetime, now: datetime) -> dict[str, Any]:
    """The status of a node that is ready."""
    return {
        "capacity": dict(spec.shape.capacity),
        "allocatable": dict(spec.shape.allocatable),
        "addresses": [
            {"type": "InternalIP", "address": LOOPBACK},
            {"type": "Hostname", "address": spec.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        "nodeInfo": _node_info(boot_id),
        "conditions": [_condition(*words, since, now) for words in _CONDITIONS],
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


def unregister(api: ApiClient, names: Iterable[str]) -> None:
    """Delete nodes and their leases, until the server does not answer."""
    with contextlib.suppress(ApiUnreachable):
        for name in names:
            for path in (f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases", "/api/v1/nodes"):
                with contextlib.suppress(RequestRefused):
                    api.delete(f"{path}/{name}")


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
        "kubeletVersion": "v1.36.0-kubetwin",
        "kubeProxyVersion": "",
        "bootID": boot_id,
        "machineID": boot_id,
        "systemUUID": boot_id,
    }


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())
