"""Calls about node groups that CloudFormation has no property for: one small function of CDK's makes them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import custom_resources as resources
from constructs import Construct

from lambdas.models.instances import nodegroup_name
from stacks.parts.acknowledgements import Reason, acknowledge

MEMORY_MIB = 256

GROUP_NAME = "nodegroup.resources.autoScalingGroups.0.name"
"""Where DescribeNodegroup says it."""


class NodegroupCalls(Construct):
    """The role and the log of that function, and what it is asked to do."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str) -> None:
        """Make the function's role.

        Args:
            scope: The stack of the node groups.
            construct_id: Of this construct.
            cluster_name: The name itself, no reference: it stands in the resources that the role may touch.
        """
        super().__init__(scope, construct_id)
        self._cluster_name = cluster_name
        self._log_group = logs.LogGroup(
            self, "Log", retention=logs.RetentionDays.ONE_MONTH, removal_policy=cdk.RemovalPolicy.DESTROY
        )
        self._role = iam.Role(
            self,
            "Role",
            description="Trainflow: limits and tags of node groups",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        self._policy = self._make_policy()
        for rule in ("DLQ", "Tracing"):
            acknowledge(cdk.Stack.of(self), f"Serverless::Serverless-Lambda{rule}", reason=Reason.DEPLOYMENTS_WAIT)

    def limit_size(self, scope: Construct, nodegroup: eks.CfnNodegroup, max_nodes: int) -> None:
        """Set the largest size, and neither the smallest nor the desired one."""
        self._call(
            scope,
            "Limit",
            service="eks",
            action="UpdateNodegroupConfig",
            parameters={**self._names(nodegroup), "scalingConfig": {"maxSize": max_nodes}},
        )

    def tag_auto_scaling_group(self, scope: Construct, nodegroup: eks.CfnNodegroup, tags: Mapping[str, str]) -> None:
        """Tag the Auto Scaling group that EKS made; it copies nothing there by itself."""
        found = self._call(
            scope,
            "AutoScalingGroup",
            service="eks",
            action="DescribeNodegroup",
            parameters=self._names(nodegroup),
            output_paths=[GROUP_NAME],
        )
        name = found.get_response_field(GROUP_NAME)
        self._call(
            scope,
            "Tags",
            service="auto-scaling",
            action="CreateOrUpdateTags",
            parameters={"Tags": [_tag(name, key, value) for key, value in tags.items()]},
        )

    def _names(self, nodegroup: eks.CfnNodegroup) -> dict[str, Any]:
        return {"clusterName": self._cluster_name, "nodegroupName": nodegroup.attr_nodegroup_name}

    def _call(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: str,
        action: str,
        parameters: dict[str, Any],
        output_paths: list[str] | None = None,
    ) -> resources.AwsCustomResource:
        """One call of an AWS API, when the group is made and whenever the parameters change."""
        made = resources.AwsCustomResource(
            scope,
            construct_id,
            on_update=resources.AwsSdkCall(
                service=service,
                action=action,
                parameters=parameters,
                physical_resource_id=resources.PhysicalResourceId.of(f"{scope.node.path}/{construct_id}"),
                output_paths=output_paths,
            ),
            role=self._role,
            log_group=self._log_group,
            memory_size=MEMORY_MIB,
            install_latest_aws_sdk=False,
        )
        made.node.add_dependency(self._policy)
        return made

    def name_role_once(self) -> None:
        """The function refers to its role, and depends on it too; cfn-lint warns of that (W3005)."""
        for function in cdk.Stack.of(self).node.find_all():
            if isinstance(function, lambda_.CfnFunction):
                function.add_deletion_override("DependsOn")

    def _make_policy(self) -> iam.Policy:
        """Made before the groups are, and so in force when the first call is made."""
        stack = cdk.Stack.of(self)
        account = "<AWS::AccountId>" if cdk.Token.is_unresolved(stack.account) else stack.account
        group = nodegroup_name("*")
        nodegroups = f"eks:{stack.region}:{{account}}:nodegroup/{self._cluster_name}/{group}/*"
        auto_scaling_groups = (
            f"autoscaling:{stack.region}:{{account}}:autoScalingGroup:*:autoScalingGroupName/eks-{group}"
        )
        policy = iam.Policy(
            self,
            "Policy",
            roles=[self._role],
            statements=[
                iam.PolicyStatement(
                    actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[self._log_group.log_group_arn]
                ),
                iam.PolicyStatement(
                    actions=["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"],
                    resources=[f"arn:{stack.partition}:{nodegroups.format(account=stack.account)}"],
                ),
                iam.PolicyStatement(
                    actions=["autoscaling:CreateOrUpdateTags"],
                    resources=[f"arn:{stack.partition}:{auto_scaling_groups.format(account=stack.account)}"],
                    conditions={"StringEquals": {"aws:ResourceTag/eks:cluster-name": self._cluster_name}},
                ),
            ],
        )
        for pattern in (nodegroups, auto_scaling_groups):
            rule = f"AwsSolutions::AwsSolutions-IAM5[Resource::arn:aws:{pattern.format(account=account)}]"
            acknowledge(policy, rule, reason=Reason.EKS_CHOOSES_IDS)
        return policy


def _tag(group: str, key: str, value: str) -> dict[str, Any]:
    return {
        "ResourceId": group,
        "ResourceType": "auto-scaling-group",
        "Key": key,
        "Value": value,
        "PropagateAtLaunch": False,
    }
