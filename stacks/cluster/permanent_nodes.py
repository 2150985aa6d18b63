"""The system nodes, which always run: for DNS, controllers, and pods that stage and publish."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.capacity.launch_template import METADATA_HOPS

INSTANCE_TYPES = ("t3a.large", "t3.large")
"""0.0752 and 0.0832 USD an hour (EC2 on-demand, us-west-2, November 2026). x86, because the images are. The second is
for zones that do not have the first."""

CPUS = 2
MEMORY_GIB = 8
"""Memory of either type."""

ROOT_GIB = 50


def add_system_nodes(
    cluster: eks.Cluster,
    *,
    count: int,
    subnet: ec2.ISubnet,
    role: iam.IRole,
    security_groups: Sequence[ec2.ISecurityGroup],
) -> eks.Nodegroup:
    """A managed node group of fixed size, in the zone of the file system.

    In one zone, because pods that stage data would pay for traffic between two, and because nothing trains any more
    when the zone of the file system fails.
    """
    template = _launch_template(cluster, security_groups)
    return cluster.add_nodegroup_capacity(
        "System",
        node_role=role,
        ami_type=eks.NodegroupAmiType.AL2023_X86_64_STANDARD,
        instance_types=[ec2.InstanceType(name) for name in INSTANCE_TYPES],
        subnets=ec2.SubnetSelection(subnets=[subnet]),
        launch_template_spec=eks.LaunchTemplateSpec(id=template.ref, version=template.attr_latest_version_number),
        min_size=count,
        desired_size=count,
        max_size=count + 1,
        enable_node_auto_repair=True,
    )


def _launch_template(scope: Construct, security_groups: Sequence[ec2.ISecurityGroup]) -> ec2.CfnLaunchTemplate:
    template = ec2.CfnLaunchTemplate
    disk = template.EbsProperty(volume_size=ROOT_GIB, volume_type="gp3", encrypted=True, delete_on_termination=True)
    return template(
        scope,
        "SystemNodeTemplate",
        launch_template_data=template.LaunchTemplateDataProperty(
            # Named here, EKS adds none of its own.
            security_group_ids=[group.security_group_id for group in security_groups],
            block_device_mappings=[template.BlockDeviceMappingProperty(device_name="/dev/xvda", ebs=disk)],
            metadata_options=template.MetadataOptionsProperty(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=METADATA_HOPS
            ),
        ),
    )
