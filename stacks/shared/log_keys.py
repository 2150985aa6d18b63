"""Keys of log groups: CloudWatch Logs uses one only if the key's own policy lets it."""

from __future__ import annotations

from collections.abc import Iterable

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

ACTIONS = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"]


def let_logs_use(key: kms.Key, groups: Iterable[str]) -> None:
    """Let CloudWatch Logs encrypt log groups (CloudWatch Logs user guide, "Encrypt log data using KMS").

    Args:
        key: A key of the stack that makes it.
        groups: Patterns of the log groups' names. CloudFormation begins a name that it chooses with the stack's.
    """
    stack = cdk.Stack.of(key)
    arns = [
        stack.format_arn(
            service="logs", resource="log-group", resource_name=group, arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        for group in groups
    ]
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="Logs",
            principals=[iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com")],
            actions=ACTIONS,
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": arns}},
        )
    )
