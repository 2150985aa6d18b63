"""Address of a deployment for the client: one parameter of Systems Manager.

The orchestration stack or the twin writes the parameter. The policy for operating runs allows this parameter only, and
no stack.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

PREFIX = "/trainflow/"
"""Begins the parameters of all deployments of a Region, so that they can be listed."""

SUFFIX = "/address"


class DeploymentAddress(BaseModel):
    """Names of a deployment's resources. A later version may add fields; an earlier client ignores them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    deployment: str
    """Name in the configuration, a dimension of the metrics."""
    state_machine_arn: str
    """The training workflow, whose executions are the runs."""
    artifact_bucket: str
    """Bucket of the artifacts, logs and records of runs."""
    data_bucket: str
    """Bucket of data sets and uploaded run specs."""
    cluster: str
    """Name of the EKS cluster."""
    namespace: str
    """Namespace of the runs' pods."""
    survey_function: str = ""
    """Function that finds and deletes what ended runs have left; empty in deployments from before there was one."""
    plan_function: str = ""
    """Function that says what a spec's run would create; the same."""


def container_log(cluster: str, kind: str) -> str:
    """Name of a log group of Container Insights: `application` has what pods print."""
    return f"/aws/containerinsights/{cluster}/{kind}"


def parameter_name(deployment: str) -> str:
    """Name of a deployment's parameter."""
    return f"{PREFIX}{deployment}{SUFFIX}"
