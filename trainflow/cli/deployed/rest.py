"""Bring a deployment to rest: no run, no training node. `make destroy` does it first.

CloudFormation deletes node groups with whatever runs on them; a run should end in its own words, with its diagnostics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from trainflow.client.deployment import Deployment, DeploymentError, NotDeployed
from trainflow.nodes.instances import INSTANCE_TYPES, nodegroup_name

CAUSE = "The deployment is being taken away."

STATE_MACHINE_OUTPUT = "TrainingStateMachine"

CLEAN_UP_SECONDS = 180.0
"""Seconds for CleanUp to delete a stopped run's jobs and to release its nodes: it works for 60 s at most, and is tried
again when it fails."""

GIVE_UP_SECONDS = 900.0
"""A node group of sixteen drains within ten minutes."""

POLL_SECONDS = 10.0


def running_executions(deployment: Deployment) -> list[str]:
    """ARNs of the active runs; empty without a workflow, or with an incomplete one."""
    try:
        machine = deployment.outputs("orchestration").get(STATE_MACHINE_OUTPUT)
    except NotDeployed:
        return []
    if machine is None:  # CloudFormation writes outputs once a stack has been made
        return []
    stepfunctions: Any = deployment.client("stepfunctions")
    found = stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=machine, statusFilter="RUNNING")
    try:
        return [execution["executionArn"] for page in found for execution in page["executions"]]
    except stepfunctions.exceptions.StateMachineDoesNotExist:
        return []


def refuse_during_runs(executions: Iterable[str]) -> None:
    """Refuse a deployment while runs are in progress.

    Raises:
        DeploymentError: If there are any; the message names them.
    """
    names = run_names(executions)
    if names:
        raise DeploymentError(
            f"Running now: {', '.join(names)}. A deployment can replace their nodes (a changed AMI release, disk or "
            "launch template). Wait for them, stop them with `trainflow rest`, or deploy all the same with FORCE=1: "
            "they go on with the code that they began with."
        )


def run_names(executions: Iterable[str]) -> list[str]:
    """Names of the runs with these ARNs."""
    return [arn.rsplit(":", 1)[-1] for arn in executions]


def bring_to_rest(
    deployment: Deployment,
    executions: Collection[str],
    *,
    say: Callable[[str], None],
    poll_seconds: float = POLL_SECONDS,
    clean_up_seconds: float = CLEAN_UP_SECONDS,
    give_up_seconds: float = GIVE_UP_SECONDS,
) -> None:
    """Stop the runs and wait until no training node is left.

    Stopping an execution makes EventBridge's rule start the clean-up, which deletes jobs and releases nodes. Nodes that
    are still there after `clean_up_seconds`, or that no run has had, are scaled to zero from here.

    Raises:
        DeploymentError: If nodes are still there after `give_up_seconds`; the message names them.
    """
    stepfunctions = deployment.client("stepfunctions")
    for arn in executions:
        stepfunctions.stop_execution(executionArn=arn, error="Aborted", cause=CAUSE)
        say(f"stopped {arn.rsplit(':', 1)[-1]}")
    began = time.monotonic()
    scaled: set[str] = set()
    while groups := _groups(deployment):
        waited = time.monotonic() - began
        if waited > give_up_seconds:
            raise DeploymentError(
                f"Nodes are still there: {_named(groups)}. The EKS console says why (the node group's health issues); "
                "`make destroy` goes on from here."
            )
        if not executions or waited >= clean_up_seconds:
            for group in groups:
                if group.desired and group.name not in scaled and _scale_to_zero(deployment, group):
                    scaled.add(group.name)
                    say(f"{group.name}: scaling {group.desired} nodes, which no run holds, to zero")
        say(f"waiting for nodes: {_named(groups)}")
        time.sleep(poll_seconds)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A training node group that is not at rest."""

    name: str
    desired: int
    maximum: int


def _groups(deployment: Deployment) -> list[_Group]:
    """Training node groups with nodes, or in the middle of a change; empty if the cluster is gone."""
    eks: Any = deployment.client("eks")
    ours = {nodegroup_name(instance_type) for instance_type in INSTANCE_TYPES}
    groups = []
    try:
        pages = list(eks.get_paginator("list_nodegroups").paginate(clusterName=deployment.cluster))
    except eks.exceptions.ResourceNotFoundException:
        return []
    for name in sorted(ours.intersection(name for page in pages for name in page["nodegroups"])):
        found = eks.describe_nodegroup(clusterName=deployment.cluster, nodegroupName=name)["nodegroup"]
        size = found["scalingConfig"]
        # CloudFormation cannot delete a group while its size is changed.
        if size["desiredSize"] or found["status"] == "UPDATING":
            groups.append(_Group(name=name, desired=int(size["desiredSize"]), maximum=int(size["maxSize"])))
    return groups


def _scale_to_zero(deployment: Deployment, group: _Group) -> bool:
    """Whether EKS took it: it refuses while another change of the group is going on."""
    eks: Any = deployment.client("eks")
    size = {"minSize": 0, "desiredSize": 0, "maxSize": group.maximum}
    try:
        eks.update_nodegroup_config(clusterName=deployment.cluster, nodegroupName=group.name, scalingConfig=size)
    except eks.exceptions.ResourceInUseException:
        return False
    return True


def _named(groups: Iterable[_Group]) -> str:
    return ", ".join(f"{group.desired} in {group.name}" for group in groups)
