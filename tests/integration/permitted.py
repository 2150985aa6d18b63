"""Roles and resources of tests that are about something else than permissions."""

from __future__ import annotations

import json

from local.aws.server import AwsServer

FOR_RULES = json.dumps(
    {
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sqs:SendMessage",
                "Principal": {"Service": "events.amazonaws.com"},
                "Resource": "*",
            }
        ]
    }
)
"""The policy of a queue to which every rule may send."""


SERVICES = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": "sts:AssumeRole",
            "Principal": {"Service": [f"{name}.amazonaws.com" for name in ("events", "lambda", "scheduler", "states")]},
        }
    ],
}
"""The trust policy of a role that these services may use."""


def make_role(aws: AwsServer, name: str) -> str:
    """A role that may do everything, for every service; its ARN."""
    iam = aws.client("iam")
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(SERVICES))
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_role_policy(RoleName=name, PolicyName="everything", PolicyDocument=json.dumps(everything))
    return str(role["Role"]["Arn"])


def let_rules_invoke(aws: AwsServer, function: str) -> None:
    """Let every rule invoke a function."""
    aws.client("lambda").add_permission(
        FunctionName=function,
        StatementId="rules",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
    )
