"""The instance types a run may ask for, and what a node of each advertises to Kubernetes.

Sources: the EC2 instance type pages (vCPU, memory, network cards, instance store) and the Neuron documentation's
architecture pages (chips and NeuronCores), November 2026; for interfaces and addresses the EKS AMI's own table
(nodeadm, internal/kubelet/instance-info.jsonl). What pods of a node may request is in `node_room`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

NEURON_DEVICE = "aws.amazon.com/neuron"
"""Extended resource of the Neuron device plugin: one whole chip."""

NEURON_CORE = "aws.amazon.com/neuroncore"
"""Extended resource of the Neuron device plugin: one NeuronCore."""

EFA_INTERFACE = "vpc.amazonaws.com/efa"
"""Extended resource of the EFA device plugin: one interface."""

DEVICE_PLUGINS = {
    NEURON_DEVICE: "neuron-device-plugin",
    NEURON_CORE: "neuron-device-plugin",
    EFA_INTERFACE: "aws-efa-k8s-device-plugin",
}
"""Who advertises them: what the names of the daemon sets hold, as their charts and manifests call them."""

HUGE_PAGES = "hugepages-2Mi"
"""Resource of pages of 2 MiB, which libfabric's EFA provider allocates its buffers from."""

HUGE_PAGES_OF_EFA_NODE = 5128
"""Huge pages that the EKS accelerated images set aside on nodes with EFA (EKS user guide, "Run machine learning
training on Amazon EKS with Elastic Fabric Adapter"); they are taken out of the node's memory."""

HUGE_PAGES_OF_EFA_POD_MIB = 5120
"""Request in the EKS user guide's examples of EFA; half of what a node sets aside. EFA locks these pages."""

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
"""Well-known node label; the older `beta.kubernetes.io/instance-type` is deprecated."""


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One EC2 instance type as a training node."""

    name: str
    vcpus: int
    memory_gib: int
    network_interfaces: int
    """Interfaces of the first network card, to which the CNI attaches pods."""
    addresses_per_interface: int
    """IPv4 addresses of each interface."""
    neuron_devices: int = 0
    neuron_cores: int = 0
    """NeuronCores as processes see them (trn2: logical cores with LNC=2)."""
    processes: tuple[int, ...] = ()
    """Processes per node that Neuron's collectives support; empty for CPU types, which take any number."""
    efa_interfaces: int = 0
    instance_store_gb: int = 0
    """NVMe disks of the instance together, in GB: what is on them is lost with the instance."""
    tflops_per_device: float | None = None
    """Dense bfloat16, in 10^12 operations a second; None where utilisation is not measured."""
    architecture: str = "x86_64"
    """What images have to be built for, as `uname -m` calls it."""

    @property
    def accelerated(self) -> bool:
        """Whether the type carries Trainium chips."""
        return self.neuron_devices > 0

    @property
    def taints(self) -> dict[str, str]:
        """Keys and values of the taints (NoSchedule) that keep pods without a toleration off nodes with chips.

        EFA needs no taint of its own: every type with EFA has chips.
        """
        return {NEURON_DEVICE: "true"} if self.accelerated else {}

    @property
    def max_processes(self) -> int:
        """Training processes that fit a node: one a NeuronCore, or one a vCPU where there are none."""
        return self.neuron_cores or self.vcpus

    @property
    def spans_nodes(self) -> bool:
        """Whether a gang may have more than one node.

        Neuron's processes on different nodes talk over EFA alone, and small sizes have none (AWS Neuron documentation,
        "How to prepare trn1.32xlarge for multi-node execution", SDK 2.29.1).
        """
        return not self.accelerated or self.efa_interfaces > 0

    @property
    def tflops_per_process(self) -> float | None:
        """Peak of the NeuronCore that one training process has."""
        if self.tflops_per_device is None:
            return None
        return self.tflops_per_device * self.neuron_devices / self.neuron_cores

    @property
    def max_pods(self) -> int:
        """Pods that EKS lets a node run: one for each address that is not an interface's own, and two without one."""
        return self.network_interfaces * (self.addresses_per_interface - 1) + 2

    @property
    def huge_pages_mib(self) -> int:
        """Memory in huge pages, in MiB."""
        return 2 * HUGE_PAGES_OF_EFA_NODE if self.efa_interfaces else 0

    @property
    def devices(self) -> dict[str, int]:
        """What a ready node of this type advertises beside CPU and memory: devices, and huge pages in bytes."""
        offered = {
            NEURON_DEVICE: self.neuron_devices,
            NEURON_CORE: self.neuron_cores,
            EFA_INTERFACE: self.efa_interfaces,
            HUGE_PAGES: self.huge_pages_mib * 1024 * 1024,
        }
        return {resource: count for resource, count in offered.items() if count}

    def uses_efa(self, num_nodes: int) -> bool:
        """Whether a gang communicates over EFA: it has more than one node, and the type has EFA."""
        return self.efa_interfaces > 0 and num_nodes > 1

    @property
    def has_scratch(self) -> bool:
        """Whether its nodes have fast disks of their own, which programs find at `/scratch`."""
        return self.instance_store_gb > 0

    def plugin_devices(self, num_nodes: int) -> dict[str, int]:
        """What device plugins have to advertise on a node for a gang of so many: all that its pods may ask for."""
        wanted = {
            NEURON_DEVICE: self.neuron_devices,
            EFA_INTERFACE: self.efa_interfaces if self.uses_efa(num_nodes) else 0,
        }
        return {resource: count for resource, count in wanted.items() if count}


TRAINIUM_TFLOPS = 190
TRAINIUM2_TFLOPS = 667
"""Dense bfloat16 of one chip: Neuron documentation, "Trainium Architecture" and "Trainium2 Architecture"."""

PROCESSES_ON_ONE_CHIP = (1, 2)
PROCESSES_ON_TRN1 = (1, 2, 8, 32)
PROCESSES_ON_TRN2 = (1, 4, 16, 64)
"""Workers per node that the Neuron runtime supports (AWS Neuron documentation, tutorials "BERT pretraining" and
"Multi-layer perceptron training", which has trn2 with two physical cores to a logical one; SDK 2.29 to 2.32). A
trn1n.32xlarge has the chips of a trn1.32xlarge."""

INSTANCE_TYPES = {
    instance.name: instance
    for instance in (
        InstanceType(
            name="trn1.2xlarge",
            vcpus=8,
            memory_gib=32,
            network_interfaces=4,
            addresses_per_interface=15,
            neuron_devices=1,
            neuron_cores=2,
            instance_store_gb=474,
            processes=PROCESSES_ON_ONE_CHIP,
            tflops_per_device=TRAINIUM_TFLOPS,
        ),
        InstanceType(
            name="trn1.32xlarge",
            vcpus=128,
            memory_gib=512,
            network_interfaces=5,
            addresses_per_interface=50,
            neuron_devices=16,
            neuron_cores=32,
            processes=PROCESSES_ON_TRN1,
            efa_interfaces=8,
            instance_store_gb=7600,
            tflops_per_device=TRAINIUM_TFLOPS,
        ),
        InstanceType(
            name="trn1n.32xlarge",
            vcpus=128,
            memory_gib=512,
            network_interfaces=5,
            addresses_per_interface=50,
            neuron_devices=16,
            neuron_cores=32,
            processes=PROCESSES_ON_TRN1,
            efa_interfaces=16,
            instance_store_gb=7600,
            tflops_per_device=TRAINIUM_TFLOPS,
        ),
        InstanceType(
            name="trn2.48xlarge",
            vcpus=192,
            memory_gib=2048,
            network_interfaces=2,
            addresses_per_interface=50,
            neuron_devices=16,
            neuron_cores=64,
            processes=PROCESSES_ON_TRN2,
            efa_interfaces=16,
            instance_store_gb=7600,
            tflops_per_device=TRAINIUM2_TFLOPS,
        ),
        InstanceType(name="m5.large", vcpus=2, memory_gib=8, network_interfaces=3, addresses_per_interface=10),
        InstanceType(name="c7i.xlarge", vcpus=4, memory_gib=8, network_interfaces=4, addresses_per_interface=15),
        InstanceType(name="c7i.4xlarge", vcpus=16, memory_gib=32, network_interfaces=8, addresses_per_interface=30),
    )
}
"""Every supported type by its EC2 name."""


def _known(name: str) -> str:
    if name not in INSTANCE_TYPES:
        raise ValueError(f"'{name}' is not supported; choose one of {', '.join(INSTANCE_TYPES)}")
    return name


InstanceTypeName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(INSTANCE_TYPES)})]
"""Name of a supported type, as a field of specs and configurations."""

SYSTEM_INSTANCE = InstanceType(
    name="t3a.large", vcpus=2, memory_gib=8, network_interfaces=3, addresses_per_interface=12
)
"""Type of the permanent nodes. No run may ask for it, so no gang waits for the nodes that hold the small pods of all
runs."""

SYSTEM_NODEGROUP = "system"
"""Node group of the permanent nodes."""


def nodegroup_name(instance_type: str) -> str:
    """The managed node group that holds the nodes of an instance type; its name has no dots."""
    return f"trainflow-{instance_type.replace('.', '-')}"
