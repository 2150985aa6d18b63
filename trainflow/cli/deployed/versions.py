"""Delete what deployments left for running executions: versions of functions and of state machines that nothing uses.

An execution calls the versions that its definition named when it began, so a deployment deletes none of them. A version
with a snapshot costs money for as long as it exists, and each holds 69 MB of the account's 75 GB of code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from trainflow.cli.deployed.rest import STATE_MACHINE_OUTPUT, running_executions
from trainflow.client.deployment import Deployment, DeploymentError
from trainflow.deployment.functions import FUNCTIONS

SETTLED = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")
"""Statuses of a stack that will not return to versions of its past."""

_VERSION = re.compile(r"arn:[\w-]+:(?:lambda|states):[\w-]+:\d+:(?:function|stateMachine):[\w-]+:\d+")
"""ARN of a version; without the number it is what there are versions of."""


def delete_old_versions(deployment: Deployment, *, say: Callable[[str], None]) -> list[str]:
    """Delete the versions that neither the deployed workflow, nor an alias, nor a running execution names.

    Returns:
        Their ARNs.

    Raises:
        NotDeployed: If the workflow does not exist.
        DeploymentError: If an update of a stack has not come to its end.
    """
    for stack in ("orchestration", "triggers"):
        if (status := deployment.status(stack)) not in SETTLED:
            raise DeploymentError(f"The stack {deployment.name}-{stack} is {status}: it may still need old versions.")
    used = _used(deployment)
    machines, functions = deployment.client("stepfunctions"), deployment.client("lambda")
    deleted = []
    for machine in sorted({arn.rpartition(":")[0] for arn in used if ":states:" in arn}):
        listed = machines.list_state_machine_versions(stateMachineArn=machine, maxResults=1000)["stateMachineVersions"]
        for arn in _unused((found["stateMachineVersionArn"] for found in listed), used):
            machines.delete_state_machine_version(stateMachineVersionArn=arn)
            deleted.append(arn)
    for name in (f"{deployment.name}-{function.name}" for function in FUNCTIONS):
        pages = functions.get_paginator("list_versions_by_function").paginate(FunctionName=name)
        versions = [found["FunctionArn"] for page in pages for found in page["Versions"]]
        aliased = {f"{name}:{found['FunctionVersion']}" for found in _aliases(functions, name)}
        for arn in _unused(versions, used):
            if arn.partition(":function:")[2] not in aliased:
                functions.delete_function(FunctionName=arn)
                deleted.append(arn)
    if deleted:
        say(f"deleted {len(deleted)} versions of functions and state machines that no run uses")
    return deleted


def _used(deployment: Deployment) -> set[str]:
    """ARNs of all versions that the workflow of now and the running executions can come to."""
    machines = deployment.client("stepfunctions")
    training = deployment.outputs("orchestration")[STATE_MACHINE_OUTPUT]
    texts = [machines.describe_state_machine(stateMachineArn=training)["definition"]]
    for execution in running_executions(deployment):
        texts.append(machines.describe_state_machine_for_execution(executionArn=execution)["definition"])
    used = {arn for text in texts for arn in _VERSION.findall(text)}
    for child in [arn for arn in used if ":states:" in arn]:
        used.update(_VERSION.findall(machines.describe_state_machine(stateMachineArn=child)["definition"]))
    return used


def _aliases(functions: Any, name: str) -> Iterable[dict[str, Any]]:
    for page in functions.get_paginator("list_aliases").paginate(FunctionName=name):
        yield from page["Aliases"]


def _unused(versions: Iterable[str], used: set[str]) -> list[str]:
    """Published versions, and not `$LATEST`, that are not among those in use."""
    return sorted(arn for arn in versions if _VERSION.fullmatch(arn) and arn not in used)
