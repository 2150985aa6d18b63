"""A deployment for backends that are made without a function around them."""

from __future__ import annotations

from dataclasses import dataclass, field

from lambdas.backends.deployment import SlurmAccess
from trainflow.models.slurm import Site


@dataclass(frozen=True)
class FakeArtifacts:
    """Implements `lambdas.backends.deployment.Artifacts`."""

    artifact_bucket: str = "artifacts"

    def url_of(self, run_id: str) -> str:
        return f"s3://{self.artifact_bucket}/{self.key_of(run_id, '')}"

    def key_of(self, run_id: str, name: str) -> str:
        return f"runs/{run_id}/{name}"


@dataclass(frozen=True)
class FakeDeployment:
    """Implements `lambdas.backends.deployment.Deployment`; has no Slurm."""

    cluster_name: str = "trainflow"
    namespace: str = "training"
    artifacts: FakeArtifacts = FakeArtifacts()
    slurm: SlurmAccess = field(
        default_factory=lambda: SlurmAccess(
            url="", key_secret="", user="", site=Site(shared_folder="", environment="", program_folder="")
        )
    )
