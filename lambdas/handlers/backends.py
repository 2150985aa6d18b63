"""Connections to the backends of the deployment that this function belongs to."""

from __future__ import annotations

from lambdas.backends.backend import Backend
from lambdas.backends.registry import BACKENDS, RUN_OBJECTS
from lambdas.backends.run_objects import RunObjects
from lambdas.gateways import kubernetes
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.handlers.environment import read
from trainflow.deployment.backends import BackendName
from trainflow.deployment.environment import (
    ArtifactEnvironment,
    CapacityEnvironment,
    ClusterEnvironment,
    ReplacementEnvironment,
    SlurmEnvironment,
)


class _Deployment:
    """The function's environment. Implements `lambdas.backends.deployment.Deployment`."""

    @property
    def cluster_name(self) -> str:
        return read(ClusterEnvironment).cluster_name

    @property
    def namespace(self) -> str:
        return read(ClusterEnvironment).namespace

    @property
    def cluster_makes_nodes(self) -> bool:
        return read(CapacityEnvironment).cluster_makes_nodes

    @property
    def replaces_bad_nodes(self) -> bool:
        return read(ReplacementEnvironment).replace_bad_nodes

    @property
    def artifacts(self) -> ArtifactEnvironment:
        return read(ArtifactEnvironment)

    @property
    def slurm(self) -> SlurmEnvironment:
        return read(SlurmEnvironment)


def connect(name: BackendName) -> Backend:
    """The backend of a job.

    Args:
        name: Value of `JobRef.backend` or `compute.backend`. A run's small programs may run on another backend than its
            gang, which their `JobRef` names.
    """
    return BACKENDS[name](_Deployment())


def run_objects() -> list[RunObjects]:
    """Connections to the systems that hold objects of the deployment's runs."""
    return [connect_to(_Deployment()) for connect_to in RUN_OBJECTS]


def connect_cluster() -> KubernetesCluster:
    """The Kubernetes cluster that this function was deployed for."""
    environment = read(ClusterEnvironment)
    return kubernetes.connect(environment.cluster_name, namespace=environment.namespace)
