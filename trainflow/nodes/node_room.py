"""CPU and memory that the pods of a node may request: capacity minus the kubelet's reservation and the daemon sets.

A pod that requests more than `room_for_pods` stays Pending on EKS, so the training pod requests less, and the twin's
nodes offer no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainflow.nodes.daemon_sets import on_node
from trainflow.nodes.instances import InstanceType

VISIBLE_MEMORY = 0.925
"""Share of the instance's memory that Linux reports. Karpenter assumes the same overhead, 7.5 %, before it has seen a
node of the type (its setting `vm-memory-overhead-percent`); most EC2 nodes report 0.94 to 0.98."""

CPU_RESERVED_PER_MILLE = ((0, 1000, 60), (1000, 2000, 10), (2000, 4000, 5), (4000, None, 2.5))
"""Start and end of a range (thousandths of a vCPU), and how many thousandths of it the kubelet keeps (EKS AMI, nodeadm:
`getCPUMillicoresToReserve` in internal/kubelet/config.go)."""

MEMORY_RESERVED_MIB = 255
MEMORY_RESERVED_MIB_PER_POD = 11
"""Memory that the kubelet keeps for each pod that the node may run (nodeadm: `getMemoryMebibytesToReserve`)."""

EVICTION_MIB = 100
"""The kubelet evicts pods when less is available (`memory.available`, Kubernetes' and EKS's default)."""

SPARE_MILLICPU = 250
SPARE_MEMORY_MIB = 512
"""Left for what is in no table: a newer add-on that requests more, a security agent, a debugging pod."""

MOST_OF_THE_CPU = 0.9
"""Share of its vCPUs that a training pod requests at most. It may use all that is idle."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """An amount of CPU and memory."""

    millicpu: int
    """CPU, in thousandths of a vCPU."""
    memory_mib: int

    def __sub__(self, other: Room) -> Room:
        return Room(millicpu=self.millicpu - other.millicpu, memory_mib=self.memory_mib - other.memory_mib)


SPARE = Room(millicpu=SPARE_MILLICPU, memory_mib=SPARE_MEMORY_MIB)


def kubelet_reserved(instance: InstanceType) -> Room:
    """Reservation of EKS's kubelet for itself and the system, without the eviction threshold."""
    return Room(
        millicpu=sum(_reserved(instance.vcpus * 1000, *part) for part in CPU_RESERVED_PER_MILLE),
        memory_mib=MEMORY_RESERVED_MIB + MEMORY_RESERVED_MIB_PER_POD * instance.max_pods,
    )


def allocatable(instance: InstanceType) -> Room:
    """Allocatable resources that an EKS node of this type reports. Huge pages are subtracted from its memory."""
    memory = int(instance.memory_gib * 1024 * VISIBLE_MEMORY) - EVICTION_MIB - instance.huge_pages_mib
    return Room(millicpu=instance.vcpus * 1000, memory_mib=memory) - kubelet_reserved(instance)


def daemon_set_requests(instance: InstanceType) -> Room:
    """Sum of the requests of daemon sets on a node of this type."""
    rows = on_node(instance)
    return Room(millicpu=sum(row.millicpu for row in rows), memory_mib=sum(row.memory_mib for row in rows))


def room_for_pods(instance: InstanceType) -> Room:
    """Room that remains for pods of runs."""
    return allocatable(instance) - daemon_set_requests(instance)


def training_pod(instance: InstanceType) -> Room:
    """Requests of the one training pod of a node; memory in whole GiB."""
    room = room_for_pods(instance) - SPARE
    return Room(
        millicpu=min(int(instance.vcpus * 1000 * MOST_OF_THE_CPU), room.millicpu),
        memory_mib=room.memory_mib // 1024 * 1024,
    )


def _reserved(total: int, start: int, end: int | None, per_mille: float) -> int:
    """Thousandths of a vCPU kept of one range; a part of one is dropped, as nodeadm's integer division drops it."""
    return int(max(0, min(total, end or total) - start) * per_mille / 1000)
