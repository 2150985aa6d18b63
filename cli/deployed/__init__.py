"""What a person does with a deployment besides starting runs: build its images, bring it to rest."""

from __future__ import annotations

from cli.deployed.deployment import Deployment, DeploymentError, NotDeployed, read_deployment
from cli.deployed.images import build_images
from cli.deployed.rest import bring_to_rest, running_executions

__all__ = [
    "Deployment",
    "DeploymentError",
    "NotDeployed",
    "bring_to_rest",
    "build_images",
    "read_deployment",
    "running_executions",
]
