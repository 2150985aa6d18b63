"""The instance types a run may ask for, and what a node of each advertises to Kubernetes.

The types are in `instance_types.json`, with their source; `stacks/tools/instance_types.py` makes it. What pods of a
node may request is in `node_room`.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from trainflow.deployment.kubernetes_names import TRAINING_NODES

NEURON_DEVICE = "aws.amazon.com/neuron"
"""Extended resource of the Neuron device plugin: one whole chip."""

NEURON_CORE = "aws.amazon.com/neuroncore"
"""Extended resource of the Neuron device plugin: one NeuronCore."""

GPU_DEVICE = "nvidia.com/gpu"
"""Extended resource of the NVIDIA device plugin: one whole GPU."""

EFA_INTERFACE = "vpc.amazonaws.com/efa"
"""Extended resource of the EFA device plugin: one interface."""

DEVICE_PLUGINS = {
    NEURON_DEVICE: "neuron-device-plugin",
    NEURON_CORE: "neuron-device-plugin",
    GPU_DEVICE: "nvidia-device-plugin",
    EFA_INTERFACE: "aws-efa-k8s-device-plugin",
}
"""Daemon set that advertises each device: a part of its name, as charts and manifests call it."""

HUGE_PAGES = "hugepages-2Mi"
"""Resource of pages of 2 MiB, which libfabric's EFA provider allocates its buffers from."""

HUGE_PAGES_PER_CORE = 110
"""Huge pages that the EFA package of EKS' images sets aside for each core: 110 MB for each of two endpoints
(awslabs/libfabric-ci-scripts, efa-check.sh, pull 122; bottlerocket-os/bottlerocket-core-kit, pull 141). They are taken
out of the node's memory, whether a pod requests them or not."""

THREADS_PER_CORE = 2
"""vCPUs of a core of every type with EFA here."""

HUGE_PAGES_OF_EFA_POD_MIB = 5120
"""Request in the EKS user guide's examples of EFA with GPUs. EFA locks these pages."""

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
"""Well-known node label; the older `beta.kubernetes.io/instance-type` is deprecated."""


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A kind of device that trains, as Kubernetes and EKS know it."""

    resource: str
    """Extended resource that pods request, and key of the taint on nodes that have it."""
    process_unit: str
    """Hardware of one training process, in the plural, for messages."""
    ami_type: str
    """EKS's image of nodes with these devices."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a node needs before the device plugin runs on it."""


NEURON = Accelerator(resource=NEURON_DEVICE, process_unit="NeuronCores", ami_type="AL2023_x86_64_NEURON")

NVIDIA = Accelerator(
    resource=GPU_DEVICE,
    process_unit="GPUs",
    ami_type="AL2023_x86_64_NVIDIA",
    # Default affinity of the chart: github.com/NVIDIA/k8s-device-plugin, values.yaml of 0.20.0. The other labels are
    # made by Node Feature Discovery, which nothing else here needs.
    node_labels={"nvidia.com/gpu.present": "true"},
)

STANDARD_AMI = "AL2023_x86_64_STANDARD"
"""EKS's image of nodes without accelerators."""


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One EC2 instance type as a training node."""

    name: str
    vcpus: int
    memory_gib: int
    network_interfaces: int
    """Interfaces of the first network card; the CNI attaches pods to them."""
    addresses_per_interface: int
    """IPv4 addresses of each interface."""
    neuron_devices: int = 0
    neuron_cores: int = 0
    """NeuronCores as processes see them (trn2: logical cores with LNC=2)."""
    gpus: int = 0
    device: str | None = None
    """EC2's name of the Neuron chip or GPU; None for CPU types."""
    processes: tuple[int, ...] = ()
    """Processes per node that Neuron's collectives support; empty for other types, which take any number."""
    efa_interfaces: int = 0
    first_efa_card: int = 0
    """Network card of the first EFA interface. Above 0, the cards before it have ordinary interfaces."""
    instance_store_gb: int = 0
    """NVMe disks of the instance together, in GB: what is on them is lost with the instance."""
    tflops_per_device: float | None = None
    """Dense bfloat16, in 10^12 operations a second; None where utilisation is not measured."""
    architecture: str = "x86_64"
    """Architecture of the images, as `uname -m` prints it."""

    @property
    def accelerator(self) -> Accelerator | None:
        """The kind of its devices; None for CPU types."""
        if self.neuron_devices:
            return NEURON
        return NVIDIA if self.gpus else None

    @property
    def accelerated(self) -> bool:
        """Whether the type carries chips that train: Neuron's or GPUs."""
        return self.accelerator is not None

    @property
    def uses_neuron(self) -> bool:
        """Whether its devices are AWS's own, which the Neuron SDK drives."""
        return self.accelerator is NEURON

    @property
    def accelerators(self) -> int:
        """Number of its devices."""
        return self.neuron_devices or self.gpus

    @property
    def ami_type(self) -> str:
        """EKS's image for its nodes."""
        return self.accelerator.ami_type if self.accelerator else STANDARD_AMI

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Labels that its nodes need."""
        return self.accelerator.node_labels if self.accelerator else {}

    @property
    def quota_family(self) -> str:
        """EC2's vCPU quotas that count it: `trn`, `inf`, `p`, `g` or `standard`."""
        category = "".join(itertools.takewhile(str.isalpha, self.name))
        return category if category in ("trn", "inf", "p", "g") else "standard"

    @property
    def taints(self) -> dict[str, str]:
        """Keys and values of the taints (NoSchedule) that keep other pods off the nodes of a run.

        Chips have the taint that the plug-ins of their devices tolerate. EFA needs none of its own: every type with EFA
        has chips.
        """
        return {self.accelerator.resource: "true"} if self.accelerator else dict(TRAINING_NODES)

    @property
    def tolerated(self) -> tuple[str, ...]:
        """Keys of the taints that its nodes may have, from our node groups or others'."""
        return (*self.taints, *(key for key in self.devices if key == EFA_INTERFACE))

    @property
    def max_processes(self) -> int:
        """Training processes that fit a node: one per NeuronCore or GPU; without either, one per vCPU."""
        return self.neuron_cores or self.gpus or self.vcpus

    @property
    def process_unit(self) -> str:
        """Hardware of one training process, in the plural."""
        return self.accelerator.process_unit if self.accelerator else "vCPUs"

    @property
    def spans_nodes(self) -> bool:
        """Whether a gang may have more than one node.

        Neuron's processes on different nodes communicate over EFA only, and small sizes lack it (AWS Neuron
        documentation, "How to prepare trn1.32xlarge for multi-node execution", SDK 2.29.1). NCCL and Gloo can use TCP.
        """
        return not self.uses_neuron or self.efa_interfaces > 0

    @property
    def tflops_per_process(self) -> float | None:
        """Peak of the NeuronCore or GPU that one training process has."""
        if self.tflops_per_device is None:
            return None
        return self.tflops_per_device * self.accelerators / self.max_processes

    @property
    def max_pods(self) -> int:
        """Pods that EKS lets a node run: one for each address that is not an interface's own, and two without one."""
        return self.network_interfaces * (self.addresses_per_interface - 1) + 2

    @property
    def huge_pages_mib(self) -> int:
        """Memory of a node in huge pages, in MiB."""
        if not self.efa_interfaces:
            return 0
        return 2 * (self.vcpus // THREADS_PER_CORE * HUGE_PAGES_PER_CORE + 1)

    @property
    def devices(self) -> dict[str, int]:
        """Resources of a ready node of this type besides CPU and memory: devices, and huge pages in bytes."""
        offered = {
            NEURON_DEVICE: self.neuron_devices,
            NEURON_CORE: self.neuron_cores,
            GPU_DEVICE: self.gpus,
            EFA_INTERFACE: self.efa_interfaces,
            HUGE_PAGES: self.huge_pages_mib * 1024 * 1024,
        }
        return {resource: count for resource, count in offered.items() if count}

    def uses_efa(self, num_nodes: int) -> bool:
        """Whether a gang communicates over EFA: it has more than one node, and the type has EFA."""
        return self.efa_interfaces > 0 and num_nodes > 1

    def huge_pages_of_pod_mib(self, num_nodes: int) -> int:
        """Huge pages that a pod of a gang requests, in MiB.

        None with Neuron: AWS's samples of training over EFA on EKS request none (aws-neuron/aws-neuron-eks-samples),
        and a node whose kubelet advertises none would take no such pod (awslabs/amazon-eks-ami, issue 2367).
        """
        if self.uses_neuron or not self.uses_efa(num_nodes):
            return 0
        return min(HUGE_PAGES_OF_EFA_POD_MIB, self.huge_pages_mib)

    @property
    def has_scratch(self) -> bool:
        """Whether its nodes have fast disks of their own, which programs find at `/scratch`."""
        return self.instance_store_gb > 0

    def plugin_devices(self, num_nodes: int) -> dict[str, int]:
        """Devices that a node has to advertise for a gang of `num_nodes`: all that its pods may request."""
        wanted = {
            NEURON_DEVICE: self.neuron_devices,
            GPU_DEVICE: self.gpus,
            EFA_INTERFACE: self.efa_interfaces if self.uses_efa(num_nodes) else 0,
        }
        return {resource: count for resource, count in wanted.items() if count}

    def devices_of(self, processes: int) -> dict[str, int]:
        """Whole devices that cover the processes of a node."""
        if self.accelerator is None:
            return {}
        per_device = self.max_processes // self.accelerators
        return {self.accelerator.resource: math.ceil(processes / per_device)}


@cache
def catalogue() -> Mapping[str, Any]:
    """`instance_types.json`: source, date, and the fields of every type by its EC2 name."""
    text = resources.files(__package__).joinpath("instance_types.json").read_text(encoding="utf-8")
    decoded: dict[str, Any] = json.loads(text)
    return decoded


def _instance(name: str, fields: Mapping[str, Any]) -> InstanceType:
    known: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in fields.items()
        if key != "zone_ids"  # which `offerings` reads
    }
    return InstanceType(name=name, **known)


INSTANCE_TYPES = {name: _instance(name, fields) for name, fields in catalogue()["instance_types"].items()}
"""Every supported type by its EC2 name."""


def unknown_type(name: str, known: Collection[str]) -> str:
    """Advice for an unknown name: the most similar names, and the page that lists all."""
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or list(known)[:3]
    return f"choose another such as {', '.join(nearest)}; the page 'Instance types' of the documentation has all"


def _known(name: str) -> str:
    if name not in INSTANCE_TYPES:
        raise ValueError(f"'{name}' is not supported; {unknown_type(name, INSTANCE_TYPES)}")
    return name


InstanceTypeName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(INSTANCE_TYPES)})]
"""Name of a supported type, as a field of specs and configurations."""

SYSTEM_INSTANCE = InstanceType(
    name="t3a.large", vcpus=2, memory_gib=8, network_interfaces=3, addresses_per_interface=12
)
"""Type of the permanent nodes. No run may ask for it, so no gang waits for the nodes that hold the small pods of all
runs."""


def nodegroup_name(instance_type: str) -> str:
    """Name of the managed node group for an instance type. Dots are replaced."""
    return f"trainflow-{instance_type.replace('.', '-')}"
