"""Policies that AWS writes because only AWS knows its software, and lists of its user guides."""

from __future__ import annotations

from aws_cdk import aws_iam as iam

from stacks.shared.acknowledgements import Reason, acknowledge

IN_NETWORK = (
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
)
"""Permissions that Lambda uses with a function's role to place it (AWSLambdaVPCAccessExecutionRole)."""


def attach_aws_policies(role: iam.Role, *names: str, reason: Reason) -> None:
    """Give a role managed policies, and acknowledge for auditors why they are not our own.

    Args:
        role: The role, whose trust policy is narrow.
        names: Names of AWS managed policies.
        reason: The reason why a copy of their statements would be worse.
    """
    for name in names:
        role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(name))
    acknowledge(role, *(f"AwsSolutions-IAM4[{aws_policy(name)}]" for name in names), reason=reason)


def aws_policy(name: str) -> str:
    """Name of a managed policy in cdk-nag's findings."""
    return f"Policy::arn:<AWS::Partition>:iam::aws:policy/{name}"
