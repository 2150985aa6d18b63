"""Bring a deployment to rest: no run, no training node. `make destroy` does it first.

CloudFormation deletes node groups with whatever runs on them; a run should end in its own words, with its diagnostics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from cli.deployed.deployment import Deployment, DeploymentError
from lambdas.models.instances import INSTANCE_TYPES, nodegroup_name

CAUSE = "The deployment is being taken away."

STATE_MACHINE_OUTPUT = "TrainingStateMachine"

GIVE_UP_SECONDS = 900.0
"""A node group of sixteen drains within ten minutes."""

POLL_SECONDS = 10.0


def running_executions(deployment: Deployment) -> list[str]:
    """ARNs of the runs that are going on."""
    machine = deployment.outputs("orchestration")[STATE_MACHINE_OUTPUT]
    pages = deployment.client("stepfunctions").get_paginator("list_executions")
    found = pages.paginate(stateMachineArn=machine, statusFilter="RUNNING")
    return [execution["executionArn"] for page in found for execution in page["executions"]]


def bring_to_rest(
    deployment: Deployment,
    executions: Iterable[str],
    *,
    say: Callable[[str], None],
    poll_seconds: float = POLL_SECONDS,
    give_up_seconds: float = GIVE_UP_SECONDS,
) -> None:
    """Stop the runs and wait until their nodes have been given back.

    Stopping an execution makes EventBridge's rule start the clean-up, which deletes jobs and returns nodes.

    Raises:
        DeploymentError: If nodes are still there after `give_up_seconds`; the message names them.
    """
    stepfunctions = deployment.client("stepfunctions")
    for arn in executions:
        stepfunctions.stop_execution(executionArn=arn, error="Aborted", cause=CAUSE)
        say(f"stopped {arn.rsplit(':', 1)[-1]}")
    deadline = time.monotonic() + give_up_seconds
    while nodes := _nodes(deployment):
        if time.monotonic() > deadline:
            named = ", ".join(f"{count} in {name}" for name, count in nodes.items())
            raise DeploymentError(
                f"Nodes are still there: {named}. Look at the CleanUp function's log, or set the node groups' desired "
                "size to 0."
            )
        say("waiting for nodes: " + ", ".join(f"{count} in {name}" for name, count in nodes.items()))
        time.sleep(poll_seconds)


def _nodes(deployment: Deployment) -> dict[str, int]:
    """Desired sizes of the training node groups that are not at zero. A cluster that is gone has none."""
    eks: Any = deployment.client("eks")
    ours = {nodegroup_name(instance_type) for instance_type in INSTANCE_TYPES}
    sizes = {}
    try:
        names = eks.list_nodegroups(clusterName=deployment.cluster)["nodegroups"]
    except eks.exceptions.ResourceNotFoundException:
        return {}
    for name in ours.intersection(names):
        description = eks.describe_nodegroup(clusterName=deployment.cluster, nodegroupName=name)
        desired = int(description["nodegroup"]["scalingConfig"]["desiredSize"])
        if desired:
            sizes[name] = desired
    return dict(sorted(sizes.items()))
