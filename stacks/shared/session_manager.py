"""A shell on an instance by AWS Systems Manager: without SSH key or open port; IAM controls the access."""

from __future__ import annotations

from aws_cdk import aws_iam as iam

from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines

ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""Permissions that an instance's agent needs for sessions and port forwarding (Systems Manager user guide, "Create a
custom IAM role for Session Manager"). AWS's policy AmazonSSMManagedInstanceCore would also let it read every parameter
of the account."""


def let_sessions_in(role: iam.Role) -> None:
    """Let the agent on instances of this role offer sessions. A user needs `ssm:StartSession` to open one."""
    role.add_to_policy(iam.PolicyStatement(sid="OfferSessions", actions=list(ACTIONS), resources=["*"]))
    acknowledge(role, "AwsSolutions-IAM5[Resource::*]", reason=Reason.AGENTS_REPORT_THEMSELVES)
    acknowledge(role, *in_both_baselines("IAMNoInlinePolicy"), reason=Reason.POLICY_OF_ONE_ROLE)
