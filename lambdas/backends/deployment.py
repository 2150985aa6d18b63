"""The settings of the deployment that backends read."""

from __future__ import annotations

from typing import Protocol

from trainflow.deployment.environment import ArtifactEnvironment, SlurmEnvironment


class Deployment(Protocol):
    """The deployment, read field by field when a backend needs it: not every function has all settings."""

    @property
    def cluster_name(self) -> str:
        """Name of the EKS cluster."""

    @property
    def namespace(self) -> str:
        """Kubernetes namespace of the runs."""

    @property
    def cluster_makes_nodes(self) -> bool:
        """Whether the cluster makes nodes for pending pods by itself."""

    @property
    def replaces_bad_nodes(self) -> bool:
        """Whether instances of nodes that runs avoid are terminated."""

    @property
    def artifacts(self) -> ArtifactEnvironment:
        """Place of the results of runs."""

    @property
    def slurm(self) -> SlurmEnvironment:
        """Access to Slurm; its URL is empty in a deployment without it."""
