"""A deployment for backends that are made without a function around them."""

from __future__ import annotations

from dataclasses import dataclass

from trainflow.deployment.environment import ArtifactEnvironment, SlurmEnvironment

ARTIFACTS = ArtifactEnvironment(artifact_bucket="artifacts")
NO_SLURM = SlurmEnvironment.model_validate(dict.fromkeys(SlurmEnvironment.model_fields, ""))


@dataclass(frozen=True)
class FakeDeployment:
    """Implements `lambdas.backends.deployment.Deployment`; has no Slurm."""

    cluster_name: str = "trainflow"
    namespace: str = "training"
    cluster_makes_nodes: bool = False
    replaces_bad_nodes: bool = False
    artifacts: ArtifactEnvironment = ARTIFACTS
    slurm: SlurmEnvironment = NO_SLURM
