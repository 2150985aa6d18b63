"""How the functions reach a Slurm cluster, whoever made it: variables, permissions, and the one door that is opened."""

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
from trainflow.models.functions import SLURM

if TYPE_CHECKING:
    from stacks.storage.stack import StorageStack

LOGS = ("runs/*/logs/*", "runs/*/tails/*", "runs/*/jobs/*")
"""Of the artifact bucket: what jobs say while they run, their nodes' last words, and how they ended."""


@dataclass(frozen=True, kw_only=True)
class SlurmReference:
    """What the functions have to know of a Slurm cluster."""

    api_url: str
    """Where slurmrestd listens; `ssm://` and the head node's id without one."""
    key_secret_arn: str = ""
    """The key of its tokens. Empty: no tokens, but Systems Manager."""
    user: str
    claims: Mapping[str, Any] = field(default_factory=dict)
    """What its tokens say beside the user's name and their end."""
    system_queue: str = ""
    shared_folder: str
    environment: str
    program_folder: str
    security_group_id: str | None = None
    """Of whoever listens; None: nothing listens for us."""
    api_port: int | None = None
    head_node: str | None = None
    """Id of the instance that Systems Manager runs commands on."""

    @property
    def variables(self) -> dict[str, str]:
        """Of every function that talks to it."""
        return {
            "SLURM_API_URL": self.api_url,
            "SLURM_KEY_SECRET": self.key_secret_arn,
            "SLURM_USER": self.user,
            "SLURM_CLAIMS": json.dumps(self.claims),
            "SLURM_SYSTEM_QUEUE": self.system_queue,
            "SLURM_SHARED_FOLDER": self.shared_folder,
            "SLURM_ENVIRONMENT": self.environment,
            "SLURM_PROGRAM_FOLDER": self.program_folder,
            # Jobs have their region and their role from the node that they run on.
            "SLURM_PROPERTIES": "{}",
        }

    def grants(self, stack: cdk.Stack, storage: StorageStack) -> list[Grant]:
        """What functions need to submit jobs and to read what these say."""
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
"""Variables of a deployment without Slurm."""


def existing_slurm(configuration: Configuration) -> SlurmReference | None:
    """The cluster that somebody else looks after, as the configuration describes it. Nothing is looked up."""
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
    """Open slurmrestd's port to the functions, and to nobody else.

    Args:
        stack: That the rules are part of.
        slurm: The cluster.
        functions: The security group that the functions stand in.
        functions_are_ours: Whether that group has to be let out, too; somebody else's lets out whom it likes.
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
    """One document, on one instance: Systems Manager asks for both."""
    document = f"arn:{stack.partition}:ssm:{stack.region}::document/AWS-RunShellScript"
    return [document, stack.format_arn(service="ec2", resource="instance", resource_name=instance_id)]
