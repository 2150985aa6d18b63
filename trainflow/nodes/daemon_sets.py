"""CPU and memory that the daemon sets of the cluster request on every node, before the first pod of a run.

The scheduler counts these requests like those of any pod, so a training pod that asks for "the node" has to leave them
out. Rows are the daemon sets of our EKS add-ons and Helm charts. Where an add-on or a chart lets us set its requests,
the stacks set them from this table; the others are what the named version asks for by itself. `tests/assets/charts`
holds each version's defaults, and a test compares them with this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainflow.nodes.instances import InstanceType

NodeKind = Literal["every", "neuron", "nvidia", "efa"]
"""Nodes that a daemon set runs on: all of them, those with Neuron devices, with GPUs, with EFA interfaces."""


@dataclass(frozen=True, kw_only=True)
class DaemonSet:
    """One daemon set: the sum of the requests of its pod's containers."""

    name: str
    part_of: str
    """EKS add-on or Helm chart that installs it."""
    nodes: NodeKind = "every"
    millicpu: int
    """CPU request, in thousandths of a vCPU."""
    memory_mib: int
    source: str
    """Version that was read, and where. Add-ons take the version that is EKS's default, which may be newer."""

    def runs_on(self, instance: InstanceType) -> bool:
        """Whether a node of this type has a pod of it."""
        match self.nodes:
            case "neuron":
                return instance.uses_neuron
            case "nvidia":
                return instance.gpus > 0
            case "efa":
                return instance.efa_interfaces > 0
        return True

    @property
    def requests(self) -> dict[str, str]:
        """The requests in the form of a container's `resources.requests`."""
        return {"cpu": f"{self.millicpu}m", "memory": f"{self.memory_mib}Mi"}


# Decision 24: one table of the daemon sets' requests; pods request the rest of a node.
DAEMON_SETS = (
    DaemonSet(
        name="aws-node",
        part_of="vpc-cni",
        millicpu=50,  # 25m each for the CNI and the network policy agent
        memory_mib=0,
        source="1.23.1: github.com/aws/amazon-vpc-cni-k8s, config/master/aws-k8s-cni.yaml",
    ),
    DaemonSet(
        name="kube-proxy",
        part_of="kube-proxy",
        millicpu=100,
        memory_mib=0,
        source="github.com/eksctl-io/eksctl, pkg/addons/default/testdata/sample-1.25.json, a listing of EKS's objects",
    ),
    DaemonSet(
        name="eks-pod-identity-agent",
        part_of="eks-pod-identity-agent",
        millicpu=0,
        memory_mib=0,
        source="chart 1.2.0: github.com/aws/eks-pod-identity-agent, charts/eks-pod-identity-agent/values.yaml",
    ),
    DaemonSet(
        name="eks-node-monitoring-agent",
        part_of="eks-node-monitoring-agent",
        millicpu=10,
        memory_mib=30,
        source="chart 1.7.0: github.com/aws/eks-node-monitoring-agent, charts/eks-node-monitoring-agent/values.yaml",
    ),
    DaemonSet(
        name="fsx-csi-node",
        part_of="aws-fsx-csi-driver",
        millicpu=30,  # 10m each for the driver, its registrar and the liveness probe
        memory_mib=104,  # 40 + 32 + 32
        source="chart 1.17.0: github.com/kubernetes-sigs/aws-fsx-csi-driver, charts/aws-fsx-csi-driver/values.yaml",
    ),
    DaemonSet(
        name="cloudwatch-agent",
        part_of="amazon-cloudwatch-observability",
        millicpu=250,
        memory_mib=128,
        source="chart 6.4.0: github.com/aws-observability/helm-charts, charts/amazon-cloudwatch-observability",
    ),
    DaemonSet(
        name="fluent-bit",
        part_of="amazon-cloudwatch-observability",
        millicpu=50,
        memory_mib=25,
        source="chart 6.4.0: github.com/aws-observability/helm-charts, charts/amazon-cloudwatch-observability",
    ),
    DaemonSet(
        name="neuron-monitor",
        part_of="amazon-cloudwatch-observability",
        nodes="neuron",
        millicpu=256,
        memory_mib=128,
        source="chart 6.4.0: github.com/aws-observability/helm-charts, charts/amazon-cloudwatch-observability",
    ),
    DaemonSet(
        name="neuron-device-plugin",
        part_of="neuron-helm-chart",
        nodes="neuron",
        millicpu=0,
        memory_mib=0,
        source="values of chart 1.10.0; templates/device-plugin of github.com/aws-neuron/neuron-helm-charts at 7324cd0",
    ),
    DaemonSet(
        name="node-problem-detector",
        part_of="neuron-helm-chart",
        nodes="neuron",
        millicpu=20,  # 10m each for the detector and the recovery agent, which is there when it is switched off too
        memory_mib=230,  # 80 + 150
        source="values of chart 1.10.0; that the agent's container is unconditional: templates/npd at f63c2ce",
    ),
    DaemonSet(
        name="dcgm-exporter",
        part_of="amazon-cloudwatch-observability",
        nodes="nvidia",
        millicpu=250,
        memory_mib=128,
        source="chart 6.4.0: github.com/aws-observability/helm-charts, charts/amazon-cloudwatch-observability",
    ),
    DaemonSet(
        name="dcgm-server",
        part_of="eks-node-monitoring-agent",
        nodes="nvidia",
        millicpu=0,
        memory_mib=0,
        source="chart 1.7.0: github.com/aws/eks-node-monitoring-agent, templates/dcgm-daemonset.yaml",
    ),
    DaemonSet(
        name="nvidia-device-plugin",
        part_of="nvidia-device-plugin",
        nodes="nvidia",
        millicpu=0,
        memory_mib=0,
        source="chart 0.20.0: github.com/NVIDIA/k8s-device-plugin, deployments/helm/nvidia-device-plugin/values.yaml",
    ),
    DaemonSet(
        name="nvidia-device-plugin-mps-control-daemon",
        part_of="nvidia-device-plugin",
        nodes="nvidia",  # with the label `nvidia.com/mps.capable` alone, which none of ours has; requests nothing
        millicpu=0,
        memory_mib=0,
        source="the same, templates/daemonset-mps-control-daemon.yml",
    ),
    DaemonSet(
        name="aws-efa-k8s-device-plugin",
        part_of="aws-efa-k8s-device-plugin",
        nodes="efa",
        millicpu=10,
        memory_mib=20,
        source="chart v0.5.30: github.com/aws/eks-charts, stable/aws-efa-k8s-device-plugin/values.yaml",
    ),
)
"""Everything that the add-ons and charts of `stacks/cluster` put on a node."""


def daemon_set(name: str) -> DaemonSet:
    """The row of this name."""
    return next(row for row in DAEMON_SETS if row.name == name)


def on_node(instance: InstanceType) -> tuple[DaemonSet, ...]:
    """The daemon sets that have a pod on every node of this type."""
    return tuple(row for row in DAEMON_SETS if row.runs_on(instance))
