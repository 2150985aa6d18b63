"""A shell on an instance by AWS Systems Manager: no SSH key, no open port, and IAM says who."""

from __future__ import annotations

from aws_cdk import aws_iam as iam

from stacks.shared.acknowledgements import Reason, acknowledge

ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""All that the agent on an instance needs for sessions and port forwarding (Systems Manager user guide, "Create a
custom IAM role for Session Manager"). AWS's policy AmazonSSMManagedInstanceCore would also let it read every parameter
of the account."""


def let_sessions_in(role: iam.Role) -> None:
    """Let the agent on instances of this role offer sessions. Who may open one needs `ssm:StartSession`."""
    role.add_to_policy(iam.PolicyStatement(sid="OfferSessions", actions=list(ACTIONS), resources=["*"]))
    acknowledge(role, "AwsSolutions-IAM5[Resource::*]", reason=Reason.AGENTS_REPORT_THEMSELVES)
