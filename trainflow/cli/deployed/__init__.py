"""Operations on a deployment besides starting runs: change it, build its images, bring it to rest."""

from __future__ import annotations

from trainflow.cli.deployed.images import build_images
from trainflow.cli.deployed.rest import bring_to_rest, refuse_during_runs, run_names, running_executions
from trainflow.cli.deployed.versions import delete_old_versions
from trainflow.client.deployment import Deployment, DeploymentError, NotDeployed, read_deployment

__all__ = [
    "Deployment",
    "DeploymentError",
    "NotDeployed",
    "bring_to_rest",
    "build_images",
    "delete_old_versions",
    "read_deployment",
    "refuse_during_runs",
    "run_names",
    "running_executions",
]
