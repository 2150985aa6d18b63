"""The software that every cluster runs for training runs, pinned to existing versions.

It provides what training pods request: NeuronCores, GPUs, EFA interfaces, gang scheduling, jobs of many parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainflow.nodes.daemon_sets import daemon_set

TRAINING_OPERATOR_IMAGE = "ghcr.io/kubeflow/training-v1/training-operator:v1-3f15cb8"
"""Kubeflow training operator, release 1.9.2: github.com/kubeflow/trainer, pull request 2634. It is not published as a
chart."""

VOLCANO, JOBSET = "volcano", "jobset"

EVERY_TAINT = [{"operator": "Exists"}]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One release of one chart."""

    name: str
    repository: str
    version: str
    namespace: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values that differ from the chart's own."""
    awaited: bool = False
    """Whether the deployment fails if its pods do not start. False for daemon sets of training nodes, since these do
    not exist yet."""


# Decision 112: `make charts` records what they make of these values, and has to follow each change here.
CHARTS = (
    # github.com/aws-neuron/neuron-helm-charts, release 1.10.0 (August 2026).
    Chart(
        name="neuron-helm-chart",
        repository="oci://public.ecr.aws/neuron/neuron-helm-chart",
        version="1.10.0",
        namespace="kube-system",
        values={
            # Jobs take whole nodes, so there is nothing to schedule inside one.
            "scheduler": {"enabled": False},
            # Reports faulty devices. It does not replace nodes: the node groups' auto repair does, and drains first.
            "npd": {
                "enabled": True,
                # Neither the chart nor Helm creates its default namespace, neuron-healthcheck-system.
                "namespaceOverride": "kube-system",
                "nodeRecovery": {"enabled": False},
            },
        },
    ),
    # github.com/NVIDIA/k8s-device-plugin, release 0.20.0 (August 2026). EKS's AL2023 image for NVIDIA has no plugin
    # (EKS user guide, "Install Kubernetes device plugin for GPUs"). It tolerates its own taint, and runs on nodes
    # with the label `nvidia.com/gpu.present`, which our node groups give.
    Chart(
        name="nvidia-device-plugin",
        repository="https://nvidia.github.io/k8s-device-plugin",
        version="0.20.0",
        namespace="kube-system",
    ),
    # github.com/aws/eks-charts, stable/aws-efa-k8s-device-plugin; has no tolerations by default.
    Chart(
        name="aws-efa-k8s-device-plugin",
        repository="https://aws.github.io/eks-charts",
        version="v0.5.30",
        namespace="kube-system",
        values={
            "tolerations": EVERY_TAINT,
            "resources": {"requests": daemon_set("aws-efa-k8s-device-plugin").requests},
        },
    ),
    # github.com/volcano-sh/helm-charts, index.yaml: the newest that is no pre-release (August 2026).
    Chart(
        name=VOLCANO,
        repository="https://volcano-sh.github.io/helm-charts",
        version="1.15.2",
        namespace="volcano-system",
        awaited=True,
    ),
    # github.com/kubernetes-sigs/jobset, issue 1213: release 0.12.0 (May 2026).
    Chart(
        name=JOBSET,
        repository="oci://registry.k8s.io/jobset/charts/jobset",
        version="0.12.0",
        namespace="jobset-system",
        # Its own values request half a vCPU, a quarter of a system node, for a handful of jobs. Do not change them with
        # this version: Helm 4 refuses its upgrades (kubernetes-sigs/jobset, issue 1205, mended after 0.12.0).
        values={"controller": {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}}},
        awaited=True,
    ),
)
"""Charts of every cluster."""

# github.com/kubeflow/trainer, charts/kubeflow-trainer: release 2.3.0 (August 2026).
TRAINER = Chart(
    name="kubeflow-trainer",
    repository="oci://ghcr.io/kubeflow/charts/kubeflow-trainer",
    version="2.3.0",
    namespace="kubeflow-system",
    values={
        # It would install JobSet again, in the version that is there already.
        JOBSET: {"install": False},
        "manager": {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}},
    },
    awaited=True,
)
"""Kubeflow Trainer v2, which runs TrainJobs: part of a cluster with `cluster.trainer`."""


def charts(*, trainer: bool) -> tuple[Chart, ...]:
    """The charts of a cluster.

    Args:
        trainer: Whether Kubeflow Trainer is one of them.
    """
    return (*CHARTS, TRAINER) if trainer else CHARTS
