"""Settings of a training node in addition to those of EKS: a NodeConfig of Amazon Linux 2023's `nodeadm`.

Logs. A pod's log is rotated at 10 MiB (Kubernetes' default), and only the newest file can be read through the API:
lines that are rotated away between two polls are lost to the metrics. A gang that logs 10 MiB/s writes 300 MiB in a
poll's 30 s: it has a new file every 100 s instead of every second, and still loses lines each time, which
PublishMetrics counts.

Locked memory. EFA registers the memory that it sends from, which locks it. Containers get 8 MiB (Linux's default), the
pods' user is not root, and a capability does not help another user; so the limit is raised for every container of a
node with EFA (github.com/awslabs/amazon-eks-ami, nodeadm/doc/examples.md, "Modifying container RLIMITs"; pull 1794).

Local disks. All NVMe disks of the instance become one volume, which holds the folders of containerd and of the kubelet
(nodeadm, LocalStorageOptions): images unpack there, and so does every emptyDir, pods' `/scratch` among them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import yaml

from trainflow.nodes.instances import InstanceType

LOG_FILE_SIZE = "1Gi"
LOG_FILES = 2
"""The least that the kubelet takes: the file that is written and the one before it."""

LOCKED_MEMORY_BYTES = 2**50
"""More than any node has. Linux's own "unlimited", 2^64 - 1, would not arrive: nodeadm merges specs as JSON whose
numbers are float64 (internal/util/merge.go), which makes it 18446744073709552000: no 64-bit integer any more."""

OPEN_FILES = {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576}
"""nodeadm's own limit (internal/containerd/base-runtime-spec.json): a list replaces the list that it is merged over."""


def user_data(instance: InstanceType, *, local_disks: bool) -> str:
    """User data for a launch template, in base64. EKS adds what a node needs to join the cluster.

    Args:
        instance: The instance type of the node.
        local_disks: Whether the instance has NVMe disks, and they are to be used.
    """
    config = yaml.safe_dump(node_config(instance, local_disks=local_disks), sort_keys=False)
    parts = ("MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="SETTINGS"', "", "--SETTINGS")
    text = "\n".join((*parts, "Content-Type: application/node.eks.aws", "", "---", f"{config}", "--SETTINGS--", ""))
    return base64.b64encode(text.encode()).decode()


def node_config(instance: InstanceType, *, local_disks: bool) -> Mapping[str, Any]:
    """The NodeConfig of a node of this type."""
    spec: dict[str, Any] = {
        "kubelet": {"config": {"containerLogMaxSize": LOG_FILE_SIZE, "containerLogMaxFiles": LOG_FILES}}
    }
    if instance.efa_interfaces:
        locked = {"type": "RLIMIT_MEMLOCK", "soft": LOCKED_MEMORY_BYTES, "hard": LOCKED_MEMORY_BYTES}
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": [OPEN_FILES, locked]}}}
    if local_disks:
        # Decision 28: containerd and the kubelet use the disks too, and pods need no hostPath.
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
