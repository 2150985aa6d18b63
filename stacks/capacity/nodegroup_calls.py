"""Calls about node groups for settings that CloudFormation does not offer as properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.shared.acknowledgements import Reason, acknowledge
from stacks.shared.aws_calls import AwsCalls, Call
from trainflow.nodes.instances import nodegroup_name

GROUP_NAME = "nodegroup.resources.autoScalingGroups.0.name"
"""Path of the Auto Scaling group's name in the answer of DescribeNodegroup."""


class NodegroupCalls(AwsCalls):
    """Calls that set the limits of node groups and the tags of their Auto Scaling groups."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str, key: kms.IKey) -> None:
        """Make the function's role.

        Args:
            scope: The stack of the node groups.
            construct_id: The id of this construct.
            cluster_name: The name itself and no reference, because it is part of the ARNs that the role may change.
            key: Key of the log of the calls.
        """
        super().__init__(scope, construct_id, description="Trainflow: limits and tags of node groups", key=key)
        self._cluster_name = cluster_name
        self._allow_calls()

    def limit_size(self, scope: Construct, nodegroup: eks.CfnNodegroup, max_nodes: int) -> None:
        """Set the largest size, and neither the smallest nor the desired one."""
        self.call(
            scope,
            "Limit",
            Call("eks", "UpdateNodegroupConfig", {**self._names(nodegroup), "scalingConfig": {"maxSize": max_nodes}}),
        )

    def tag_auto_scaling_group(self, scope: Construct, nodegroup: eks.CfnNodegroup, tags: Mapping[str, str]) -> None:
        """Tag the Auto Scaling group that EKS made; it copies nothing there by itself."""
        found = self.call(
            scope,
            "AutoScalingGroup",
            Call("eks", "DescribeNodegroup", self._names(nodegroup), output_paths=[GROUP_NAME]),
        )
        name = found.get_response_field(GROUP_NAME)
        self.call(
            scope,
            "Tags",
            Call(
                "auto-scaling",
                "CreateOrUpdateTags",
                {"Tags": [_tag(name, key, value) for key, value in tags.items()]},
            ),
        )

    def _names(self, nodegroup: eks.CfnNodegroup) -> dict[str, Any]:
        return {"clusterName": self._cluster_name, "nodegroupName": nodegroup.attr_nodegroup_name}

    def _allow_calls(self) -> None:
        """Attached before the groups are made, so that the policy is in force when the first call is made."""
        stack = cdk.Stack.of(self)
        account = "<AWS::AccountId>" if cdk.Token.is_unresolved(stack.account) else stack.account
        group = nodegroup_name("*")
        nodegroups = f"eks:{stack.region}:{{account}}:nodegroup/{self._cluster_name}/{group}/*"
        auto_scaling_groups = (
            f"autoscaling:{stack.region}:{{account}}:autoScalingGroup:*:autoScalingGroupName/eks-{group}"
        )
        policy = self.allow(
            iam.PolicyStatement(
                actions=["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"],
                resources=[f"arn:{stack.partition}:{nodegroups.format(account=stack.account)}"],
            ),
            iam.PolicyStatement(
                actions=["autoscaling:CreateOrUpdateTags"],
                resources=[f"arn:{stack.partition}:{auto_scaling_groups.format(account=stack.account)}"],
                conditions={"StringEquals": {"aws:ResourceTag/eks:cluster-name": self._cluster_name}},
            ),
        )
        for pattern in (nodegroups, auto_scaling_groups):
            rule = f"AwsSolutions-IAM5[Resource::arn:aws:{pattern.format(account=account)}]"
            acknowledge(policy, rule, reason=Reason.SERVICES_CHOOSE_IDS)


def _tag(group: str, key: str, value: str) -> dict[str, Any]:
    return {
        "ResourceId": group,
        "ResourceType": "auto-scaling-group",
        "Key": key,
        "Value": value,
        "PropagateAtLaunch": False,
    }
