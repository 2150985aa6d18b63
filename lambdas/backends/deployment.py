"""The settings of the deployment that backends read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainflow.models.slurm import Site


class Artifacts(Protocol):
    """Place of the results of runs."""

    @property
    def artifact_bucket(self) -> str:
        """Name of the bucket."""

    def url_of(self, run_id: str) -> str:
        """The folder of a run's artifacts."""

    def key_of(self, run_id: str, name: str) -> str:
        """The key of one of a run's artifacts."""


@dataclass(frozen=True, kw_only=True)
class SlurmAccess:
    """Address and user of Slurm, and a description of its nodes."""

    url: str
    """URL of slurmrestd; `ssm://<instance id>` of a machine with Slurm's commands, where there is none; empty in a
    deployment without Slurm."""
    key_secret: str
    """Secrets Manager's name of the key for tokens, in base64."""
    user: str
    """The user as whom the jobs run."""
    site: Site
    claims: str = ""
    """JSON object of further claims of a token beside its user and its expiry; may be empty."""


class Deployment(Protocol):
    """The deployment, read field by field when a backend needs it: not every function has all settings."""

    @property
    def cluster_name(self) -> str:
        """Name of the EKS cluster."""

    @property
    def namespace(self) -> str:
        """Kubernetes namespace of the runs."""

    @property
    def artifacts(self) -> Artifacts:
        """Place of the results of runs."""

    @property
    def slurm(self) -> SlurmAccess:
        """Access to Slurm; its URL is empty in a deployment without it."""
