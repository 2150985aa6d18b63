"""Access of the functions to a Slurm cluster, deployed here or existing: variables, permissions, and one security group
rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from stacks.orchestration.permissions import Grant, allow, objects
from stacks.shared.acknowledgements import Reason
from trainflow.configuration.deployment import Configuration
from trainflow.deployment.functions import SLURM

if TYPE_CHECKING:
    from stacks.storage.stack import StorageStack

LOGS = ("runs/*/logs/*", "runs/*/tails/*", "runs/*/jobs/*")
"""Objects of the artifact bucket: the jobs' output, the last lines of their nodes, and the records of their end."""


@dataclass(frozen=True, kw_only=True)
class SlurmReference:
    """Properties of a Slurm cluster that the functions need."""

    api_url: str
    """URL of slurmrestd; for a cluster without it, `ssm://` and the head node's id."""
    key_secret_arn: str = ""
    """ARN of the key that signs tokens. Empty: Systems Manager is used instead of tokens."""
    user: str
    claims: Mapping[str, Any] = field(default_factory=dict)
    """Claims of the tokens besides the user's name and the expiry."""
    system_queue: str = ""
    shared_folder: str
    environment: str
    program_folder: str
    security_group_id: str | None = None
    """Security group of slurmrestd; None if it does not run for us."""
    api_port: int | None = None
    head_node: str | None = None
    """Id of the instance where Systems Manager runs commands."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of every function that calls the cluster."""
        return {
            "SLURM_API_URL": self.api_url,
            "SLURM_KEY_SECRET": self.key_secret_arn,
            "SLURM_USER": self.user,
            "SLURM_CLAIMS": json.dumps(self.claims),
            "SLURM_SYSTEM_QUEUE": self.system_queue,
            "SLURM_SHARED_FOLDER": self.shared_folder,
            "SLURM_ENVIRONMENT": self.environment,
            "SLURM_PROGRAM_FOLDER": self.program_folder,
            # Jobs take region and role from their node.
            "SLURM_PROPERTIES": "{}",
        }

    def grants(self, stack: cdk.Stack, storage: StorageStack) -> list[Grant]:
        """Permissions to submit jobs and to read what the jobs write."""
        artifacts = storage.artifact_bucket
        found = [
            allow(
                "s3:GetObject",
                on=[objects(storage, artifacts, pattern) for pattern in LOGS],
                pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS,
            ),
            allow("s3:ListBucket", on=artifacts.bucket_arn, when={"StringLike": {"s3:prefix": "runs/*"}}),
            allow("kms:Decrypt", on=storage.key.key_arn),
        ]
        if self.key_secret_arn:
            found.append(allow("secretsmanager:GetSecretValue", on=self.key_secret_arn))
        if self.head_node is not None:
            found += [
                allow("ssm:SendCommand", on=_run_shell_script(stack, self.head_node)),
                allow("ssm:GetCommandInvocation", on="*"),
            ]
        return found


NOWHERE = dict.fromkeys(SLURM, "")
"""Values of the variables in a deployment without Slurm."""


def existing_slurm(configuration: Configuration) -> SlurmReference | None:
    """An existing cluster, as the configuration describes it. No AWS call is made."""
    theirs = configuration.slurm.existing if configuration.slurm else None
    if theirs is None:
        return None
    return SlurmReference(
        api_url=theirs.api_url or f"ssm://{theirs.head_node_instance_id}",
        key_secret_arn=theirs.key_secret_arn or "",
        user=theirs.user,
        system_queue=theirs.system_queue or "",
        shared_folder=theirs.shared_folder,
        environment=theirs.environment,
        program_folder=theirs.program_folder,
        security_group_id=theirs.security_group_id,
        api_port=theirs.api_port,
        head_node=theirs.head_node_instance_id,
    )


def let_functions_in(
    stack: cdk.Stack, slurm: SlurmReference, functions: ec2.ISecurityGroup, *, functions_are_ours: bool
) -> None:
    """Open slurmrestd's port to the functions only.

    Args:
        stack: The stack of the rules.
        slurm: The cluster.
        functions: The security group of the functions.
        functions_are_ours: Whether that group is deployed here and needs an egress rule, too; an existing group has its
            own rules.
    """
    if slurm.security_group_id is None:
        return
    door: dict[str, Any] = {"ip_protocol": "tcp", "from_port": slurm.api_port, "to_port": slurm.api_port}
    ec2.CfnSecurityGroupIngress(
        stack,
        "FunctionsToSlurm",
        group_id=slurm.security_group_id,
        source_security_group_id=functions.security_group_id,
        description="Functions to slurmrestd",
        **door,
    )
    if functions_are_ours:
        ec2.CfnSecurityGroupEgress(
            stack,
            "FunctionsOutToSlurm",
            group_id=functions.security_group_id,
            destination_security_group_id=slurm.security_group_id,
            description="Functions to slurmrestd",
            **door,
        )


def _run_shell_script(stack: cdk.Stack, instance_id: str) -> list[str]:
    """Permission to run one document on one instance; Systems Manager checks both."""
    document = f"arn:{stack.partition}:ssm:{stack.region}::document/AWS-RunShellScript"
    return [document, stack.format_arn(service="ec2", resource="instance", resource_name=instance_id)]
