"""The log group of CDK's Lambda functions for custom resources."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

MEMORY_MIB = 256
"""Memory of a function if CDK does not set it: enough for a program that forwards requests."""


def settle_custom_resources(stack: cdk.Stack, *, key: kms.IKey) -> logs.LogGroup:
    """Let all custom resources of a stack log to one group that is deleted with the stack.

    Otherwise Lambda makes a group for each on its first call, or CDK does: kept forever, and left behind by `cdk
    destroy`. To be called when everything else in the stack has been made.

    Args:
        stack: The stack.
        key: Key of the log group.
    """
    functions = [
        node
        for node in stack.node.find_all()
        if isinstance(node, cdk.CfnResource) and node.cfn_resource_type == "AWS::Lambda::Function"
    ]
    group = logs.LogGroup(
        stack,
        "CustomResourceLog",
        encryption_key=key,
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    for function in functions:
        _settle(function, group)
    return group


def _settle(function: cdk.CfnResource, group: logs.LogGroup) -> None:
    construct = function.node.scope
    if isinstance(function, lambda_.CfnFunction) and construct is not None:
        made_by_cdk = construct.node.try_find_child("LogGroup") is not None
        if function.logging_config is not None and not made_by_cdk:
            return  # It was given a group, to which its role may write and to no other.
    if isinstance(function, lambda_.CfnFunction):
        function.logging_config = lambda_.CfnFunction.LoggingConfigProperty(log_group=group.log_group_name)
        function.memory_size = function.memory_size or MEMORY_MIB
        if construct is not None:
            construct.node.try_remove_child("LogGroup")
    else:
        function.add_property_override("LoggingConfig", {"LogGroup": group.log_group_name})
    # The role is named by its ARN already; cfn-lint warns of an additional dependency (W3005).
    policies = [node for node in construct.node.find_all() if isinstance(node, iam.CfnPolicy)] if construct else []
    function.add_override("DependsOn", [policy.logical_id for policy in policies] or None)
