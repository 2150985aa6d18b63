"""CDK's own provider that applies manifests and charts, with only the permissions that it uses.

CDK gives its two functions AWS's policies, which write to every log group and read every image of the account. One of
them administers the cluster, so the little that it needs besides is written out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import aws_cdk as cdk
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import IConstruct

from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from stacks.shared.aws_calls import accept_function_of_deployments
from stacks.shared.aws_policies import IN_NETWORK

PUBLIC_CHARTS = ("ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken")
"""The handler logs in to the public registry of ECR before it pulls a chart."""

Resource = TypeVar("Resource", bound=cdk.CfnResource)


def narrow_kubectl_provider(cluster: eks.Cluster, log_group: logs.ILogGroup) -> None:
    """Limit the provider to the permissions that its two functions use.

    Args:
        cluster: The cluster, which was made with a kubectl layer.
        log_group: The log group of both functions.
    """
    provider = cluster.node.find_child("KubectlProvider")
    handler = provider.node.find_child("Handler")
    framework = provider.node.find_child("Provider").node.find_child("framework-onEvent")
    function = _resource(handler, lambda_.CfnFunction)
    writes = _allow(["logs:CreateLogStream", "logs:PutLogEvents"], log_group.log_group_arn)
    stands = _allow(IN_NETWORK, "*")
    _grant(handler, writes, stands, _allow(PUBLIC_CHARTS, "*"), _allow(["eks:DescribeCluster"], cluster.cluster_arn))
    _grant(framework, writes, stands, _allow(["lambda:InvokeFunction", "lambda:GetFunction"], function.attr_arn))
    acknowledge(handler, "AwsSolutions-L1", "Serverless-LambdaLatestVersion", reason=Reason.RUNTIME_OF_CDK)
    # It belonged to a policy that is no longer attached.
    handler.node.try_remove_child("HasEcrPublic")
    acknowledge(provider, "AwsSolutions-IAM5[Resource::*]", reason=Reason.NO_RESOURCE_LEVEL)
    accept_function_of_deployments(provider)
    acknowledge(provider, *in_both_baselines("IAMNoInlinePolicy"), reason=Reason.POLICY_OF_ONE_ROLE)


def _grant(function: IConstruct, *statements: iam.PolicyStatement) -> None:
    """Replace the statements that CDK has added by these."""
    role = function.node.find_child("ServiceRole")
    _resource(role, iam.CfnRole).managed_policy_arns = []
    policy = _resource(role.node.find_child("DefaultPolicy"), iam.CfnPolicy)
    policy.policy_document = iam.PolicyDocument(statements=list(statements))


def _allow(actions: Sequence[str], resource: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=[resource])


def _resource(construct: IConstruct, kind: type[Resource]) -> Resource:
    resource = construct.node.default_child
    if not isinstance(resource, kind):
        raise TypeError(f"{construct.node.path} is not made of {kind.__name__}")
    return resource
