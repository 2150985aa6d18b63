"""The nodes that gangs run on: what a node offers, how large its node group is, and which run claims how many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainflow.models.instances import HUGE_PAGES, INSTANCE_TYPE_LABEL
from trainflow.models.kubernetes_names import (
    CORDONED_ANNOTATION,
    ENDS_AT_LABEL,
    RELEASED_ANNOTATION,
    REPLACED_ANNOTATION,
)

BINARY_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
"""Units of memory in a kubelet's reports; an amount without one of them is in bytes."""


TROUBLE_BY_TAINT = {
    "node.kubernetes.io/out-of-service": "NodeShutdown",
    "node.cloudprovider.kubernetes.io/shutdown": "NodeShutdown",
    "aws-node-termination-handler/spot-itn": "SpotInterruption",
    "aws-node-termination-handler/asg-lifecycle-termination": "NodeDrained",
    "aws-node-termination-handler/rebalance-recommendation": "NodeDrained",
    "aws-node-termination-handler/scheduled-maintenance": "NodeDrained",
    "ToBeDeletedByClusterAutoscaler": "NodeDrained",
    "karpenter.sh/disrupted": "NodeDrained",
    "node.kubernetes.io/unreachable": "NodeUnreachable",
}
"""Reason that each taint stands for, the most certain first: taints of Kubernetes ("Taints and Tolerations"), of AWS's
node termination handler, and of the two autoscalers."""


class Node:
    """Facts about a node that the workflow uses, from the Kubernetes object `manifest`."""

    def __init__(self, manifest: Any) -> None:
        self.name: str = manifest["metadata"]["name"]
        status, spec = manifest.get("status", {}), manifest.get("spec", {})
        self.allocatable: dict[str, str] = status.get("allocatable", {})
        self.taints = frozenset(str(taint["key"]) for taint in spec.get("taints") or ())
        self._ready_status = next(
            (str(each["status"]) for each in status.get("conditions") or () if each["type"] == "Ready"), None
        )
        self.cordoned = bool(spec.get("unschedulable", False))
        self.ready = not self.cordoned and self._ready_status == "True"
        annotations = manifest["metadata"].get("annotations") or {}
        self.replaced_by: str | None = annotations.get(REPLACED_ANNOTATION)
        """The run that has its instance terminated, and another one started in its place; None for any other node."""
        self.cordoned_by_run = CORDONED_ANNOTATION in annotations
        """Whether the cordon is a run's; one that a person has made stays."""
        self.released = RELEASED_ANNOTATION in annotations
        """Whether it is cordoned because no run needs it."""
        self._provider_id: str = spec.get("providerID") or ""
        self._labels: Mapping[str, str] = manifest["metadata"].get("labels") or {}

    @property
    def instance_type(self) -> str | None:
        """Its type; None for a node without the label."""
        return self._labels.get(INSTANCE_TYPE_LABEL)

    @property
    def instance_id(self) -> str | None:
        """Its EC2 instance; None for other nodes. EKS' provider id is `aws:///us-west-2a/i-0123456789abcdef0`."""
        last = self._provider_id.rpartition("/")[2]
        return last if last.startswith("i-") else None

    @property
    def ends_at(self) -> datetime | None:
        """Time when EC2 begins to terminate it, if that is known."""
        seconds = self._labels.get(ENDS_AT_LABEL, "")
        return datetime.fromtimestamp(int(seconds), UTC) if seconds.isdecimal() else None

    def advertised(self, wanted: Mapping[str, int]) -> frozenset[str]:
        """Names of the devices that it offers in the wanted number."""
        return frozenset(name for name, count in wanted.items() if int(self.allocatable.get(name, "0")) >= count)

    @property
    def trouble(self) -> str | None:
        """Reason why programs cannot finish on this node, in the form of a pod's reason; None for a healthy node.

        A cordon does not count: the node's pods continue to run.
        """
        found = next((reason for taint, reason in TROUBLE_BY_TAINT.items() if taint in self.taints), None)
        return found or {"Unknown": "NodeUnreachable", "False": "NodeNotReady"}.get(self._ready_status or "")

    @property
    def is_terminating(self) -> bool:
        """Whether the node is lost or draining. NotReady does not count: the node may be starting."""
        return self.trouble not in (None, "NodeNotReady")

    @property
    def huge_pages_mib(self) -> int:
        """Memory that it sets aside in pages of 2 MiB, in MiB."""
        amount = self.allocatable.get(HUGE_PAGES, "0")
        unit = next((unit for unit in BINARY_UNITS if amount.endswith(unit)), "")
        return int(amount.removesuffix(unit)) * BINARY_UNITS.get(unit, 1) // 2**20


@dataclass(frozen=True, kw_only=True)
class Nodegroup:
    """A node group's size."""

    name: str
    desired: int
    """Desired size; nodes that are starting cost money too."""
    minimum: int
    maximum: int
    subnets: tuple[str, ...] = ()
    """Subnets that its nodes are in."""
    capacity_type: str = "ON_DEMAND"
    """EKS' name of it: ON_DEMAND, SPOT or CAPACITY_BLOCK."""
    auto_scaling_group: str | None = None
    """The group that starts its instances."""

    @property
    def surplus(self) -> int:
        """Nodes that can be released."""
        return max(self.desired - self.minimum, 0)


@dataclass(frozen=True, kw_only=True)
class ScalingGroup:
    """The Auto Scaling group of a node group, as it is now. EKS reports its size a little later."""

    desired: int
    in_service: frozenset[str]
    """Ids of its instances that neither start nor leave."""


@dataclass(frozen=True, kw_only=True)
class FailedLaunch:
    """An attempt of Auto Scaling to start an instance, which failed."""

    at: datetime
    message: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Nodes that a run needs. The claim exists from before they are requested until it is cancelled."""

    name: str
    run_id: str
    instance_type: str
    num_nodes: int
    created_at: str = ""
    """Time when the run began to wait; RFC 3339 in UTC, which sorts by time."""
    avoided_nodes: frozenset[str] = frozenset()
    """Nodes that the run does not use."""


@dataclass(frozen=True, kw_only=True)
class Grants:
    """Which runs have their nodes of a type, as it is stored in one object."""

    by_run: Mapping[str, int]
    """Nodes of each run."""
    version: str | None = None
    """Version of the object, required to replace it; None before the object exists."""
