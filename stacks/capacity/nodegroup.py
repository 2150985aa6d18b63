"""One managed node group: none of its nodes exist until a run claims them."""

from __future__ import annotations

from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.capacity.launch_template import NodeTemplate
from stacks.capacity.nodegroup_calls import NodegroupCalls
from trainflow.configuration.nodes import Nodegroup
from trainflow.deployment.kubernetes_names import TRAINING_NODES
from trainflow.nodes.instances import nodegroup_name

CAPACITY_TYPES = {
    "on-demand": "ON_DEMAND",
    "spot": "SPOT",
    "capacity-block": "CAPACITY_BLOCK",
    "reservation": "ON_DEMAND",
}

AUTOSCALER = "k8s.io/cluster-autoscaler/node-template"
"""Prefix of the tags that describe the nodes of an empty group to an autoscaler."""


class TrainingNodegroup(Construct):
    """A managed node group, the limit of its size, and the tags of its Auto Scaling group.

    EKS wants a desired size when a group is made, and CloudFormation sets it again whenever any part of ScalingConfig
    changes: with the limit in the template, raising it would take the nodes of a running job away. So the template
    holds a ScalingConfig that never changes, and the limit is set by a call of its own that names nothing else. A limit
    below the nodes that are up is refused by EKS, and the deployment with it.

    CfnNodegroup, because the L2 construct compares the AMI with instance types that are in the launch template here.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Nodegroup,
        cluster_name: str,
        kubernetes_version: str,
        neuron_ami_release: str | None,
        node_role: iam.IRole,
        subnet_id: str,
        template: NodeTemplate,
        calls: NodegroupCalls,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        instance = settings.instance
        release = neuron_ami_release if instance.uses_neuron else None
        self.resource = eks.CfnNodegroup(
            self,
            "Resource",
            cluster_name=cluster_name,
            nodegroup_name=nodegroup_name(settings.instance_type),
            node_role=node_role.role_arn,
            subnets=[subnet_id],
            capacity_type=CAPACITY_TYPES[settings.mode],
            ami_type=instance.ami_type,
            # A release says the version too. Without one EKS takes the newest of the version: decision 0023.
            release_version=release,
            version=None if release else kubernetes_version,
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.resource.ref, version=template.resource.attr_latest_version_number
            ),
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(min_size=0, desired_size=0, max_size=1),
            # Old nodes are terminated first, because there may be no capacity for a second set.
            update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1, update_strategy="MINIMAL"),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
            labels={**TRAINING_NODES, **settings.node_labels},
            taints=[
                eks.CfnNodegroup.TaintProperty(key=key, value=value, effect="NO_SCHEDULE")
                for key, value in instance.taints.items()
            ],
        )
        calls.limit_size(self, self.resource, settings.max_nodes)
        calls.tag_auto_scaling_group(self, self.resource, self.auto_scaling_tags)

    @property
    def auto_scaling_tags(self) -> dict[str, str]:
        """Tags that describe a node of this group to an autoscaler, which may find no node to inspect."""
        instance = self._settings.instance
        names = {**TRAINING_NODES, **self._settings.node_labels}
        labels = {f"{AUTOSCALER}/label/{key}": value for key, value in names.items()}
        taints = {f"{AUTOSCALER}/taint/{key}": f"{value}:NoSchedule" for key, value in instance.taints.items()}
        devices = {f"{AUTOSCALER}/resources/{device}": str(count) for device, count in instance.devices.items()}
        return {**labels, **taints, **devices}
