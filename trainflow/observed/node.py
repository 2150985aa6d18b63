"""A node of the cluster: one type and its one parser, for functions and doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainflow.deployment.kubernetes_names import (
    CORDONED_ANNOTATION,
    ENDS_AT_LABEL,
    RELEASED_ANNOTATION,
    REPLACED_ANNOTATION,
)
from trainflow.nodes.instances import HUGE_PAGES, INSTANCE_TYPE_LABEL
from trainflow.observed.quantity import parse_quantity

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
"""Trouble of a node by its taint, the most certain first: taints of Kubernetes ("Taints and Tolerations"), of AWS's
node termination handler, and of the two autoscalers."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node as it was last observed."""

    name: str
    labels: Mapping[str, str]
    provider_id: str
    allocatable: Mapping[str, str]
    taints: frozenset[str]
    """Keys of its taints."""
    ready_status: str | None
    """Status of its condition `Ready`: True, False or Unknown; None before its kubelet has reported."""
    ready_since: datetime | None
    """Time of the last change of that status."""
    cordoned: bool
    replaced_by: str | None
    """The run that has its instance terminated, and another one started in its place; None for any other node."""
    cordoned_by_run: bool
    """Whether the cordon is a run's; one that a person has made stays."""
    released: bool
    """Whether it is cordoned because no run needs it."""
    addresses: tuple[str, ...]
    """Its internal IP addresses; empty before its kubelet has reported."""
    os_image: str
    """Operating system in its maker's words, `Bottlerocket OS 1.53.0 (…)`; empty before its kubelet has reported."""

    @property
    def ready(self) -> bool:
        """Whether it takes pods."""
        return not self.cordoned and self.ready_status == "True"

    @property
    def has_ipv4(self) -> bool:
        """Whether its pods have IPv4 addresses, as far as is known: EKS gives nodes and pods those of one family."""
        return not self.addresses or any(":" not in address for address in self.addresses)

    @property
    def instance_type(self) -> str | None:
        """Its type; None for a node without the label."""
        return self.labels.get(INSTANCE_TYPE_LABEL)

    @property
    def instance_id(self) -> str | None:
        """Its EC2 instance; None for a node outside of EC2. EKS' provider id is `aws:///us-west-2a/i-0123456789abcdef0`."""
        last = self.provider_id.rpartition("/")[2]
        return last if last.startswith("i-") else None

    @property
    def ends_at(self) -> datetime | None:
        """Start of its termination by EC2; None if it is unknown."""
        seconds = self.labels.get(ENDS_AT_LABEL, "")
        return datetime.fromtimestamp(int(seconds), UTC) if seconds.isdecimal() else None

    def advertised(self, wanted: Mapping[str, int]) -> frozenset[str]:
        """Names of the devices that it offers in the wanted number."""
        return frozenset(name for name, count in wanted.items() if int(self.allocatable.get(name, "0")) >= count)

    @property
    def trouble(self) -> str | None:
        """Reason that ends programs on this node early, in the form of a pod's reason; None for a healthy node.

        A cordon is not trouble: the node's pods run on.
        """
        found = next((reason for taint, reason in TROUBLE_BY_TAINT.items() if taint in self.taints), None)
        return found or {"Unknown": "NodeUnreachable", "False": "NodeNotReady"}.get(self.ready_status or "")

    @property
    def is_terminating(self) -> bool:
        """Whether the node is lost or draining. NotReady does not count: the node may be starting."""
        return self.trouble not in (None, "NodeNotReady")

    @property
    def huge_pages_mib(self) -> int:
        """Memory that it sets aside in pages of 2 MiB, in MiB."""
        return int(parse_quantity(self.allocatable.get(HUGE_PAGES, "0"))) // 2**20

    @property
    def disk_bytes(self) -> int | None:
        """Disk that it offers to images and pods together; None if its kubelet reports none."""
        amount = self.allocatable.get("ephemeral-storage")
        return int(parse_quantity(amount)) if amount is not None else None


def read_node(manifest: Mapping[str, Any]) -> Node:
    """Parse a node that the API serves."""
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    annotations = metadata.get("annotations") or {}
    ready: Mapping[str, str] = next((each for each in status.get("conditions") or () if each["type"] == "Ready"), {})
    since = ready.get("lastTransitionTime")
    return Node(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        provider_id=spec.get("providerID") or "",
        allocatable=status.get("allocatable") or {},
        taints=frozenset(str(taint["key"]) for taint in spec.get("taints") or ()),
        ready_status=ready.get("status"),
        ready_since=datetime.fromisoformat(since) if since else None,
        cordoned=bool(spec.get("unschedulable", False)),
        replaced_by=annotations.get(REPLACED_ANNOTATION),
        cordoned_by_run=CORDONED_ANNOTATION in annotations,
        released=RELEASED_ANNOTATION in annotations,
        addresses=tuple(each["address"] for each in status.get("addresses") or () if each["type"] == "InternalIP"),
        os_image=(status.get("nodeInfo") or {}).get("osImage", ""),
    )
