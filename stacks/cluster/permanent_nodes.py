"""The nodes that always run: system nodes for DNS and controllers, others for the runs' small jobs.

A small job may be a program of anybody who may start a run. What breaks out of its container has the rights of its
node, and with them those of the pods there: on a system node these make pods in every namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.capacity.launch_template import METADATA_HOPS
from trainflow.configuration.deployment import Cluster
from trainflow.deployment.kubernetes_names import CONTROLLER_NODES, SMALL_JOB_NODES

INSTANCE_TYPES = ("t3a.large", "t3.large")
"""0.0752 and 0.0832 USD an hour (EC2 on-demand, us-west-2, November 2026). x86, because the images are. The second is
for zones that do not have the first."""

CPUS = 2
MEMORY_GIB = 8
"""Memory of either type."""

ROOT_GIB = 150
"""The preflight's probe runs here in the image of the training: two versions of the largest one fit, beside those of
staging and of CPU programs (`trainflow.nodes.image_disk`). 8 USD a month more than the 50 GiB of the system."""


# Decision 70: small jobs have permanent nodes of their own, away from controllers.
def add_permanent_nodes(
    cluster: eks.Cluster,
    settings: Cluster,
    *,
    subnet: ec2.ISubnet,
    role: iam.IRole,
    security_groups: Sequence[ec2.ISecurityGroup],
) -> list[eks.Nodegroup]:
    """Managed node groups of fixed size, in the zone of the file system: of the system, and of small jobs if there are
    any.

    In one zone, because pods that stage data would pay for traffic between two, and because nothing trains any more
    when the zone of the file system fails.
    """
    template = _launch_template(cluster, security_groups)

    def add(name: str, count: int, *, labels: Mapping[str, str], taints: Mapping[str, str]) -> eks.Nodegroup:
        return cluster.add_nodegroup_capacity(
            name,
            node_role=role,
            ami_type=eks.NodegroupAmiType.AL2023_X86_64_STANDARD,
            instance_types=[ec2.InstanceType(each) for each in INSTANCE_TYPES],
            subnets=ec2.SubnetSelection(subnets=[subnet]),
            launch_template_spec=eks.LaunchTemplateSpec(id=template.ref, version=template.attr_latest_version_number),
            labels=dict(labels) or None,
            taints=[
                eks.TaintSpec(effect=eks.TaintEffect.NO_SCHEDULE, key=key, value=value) for key, value in taints.items()
            ],
            min_size=count,
            desired_size=count,
            max_size=count + 1,
            enable_node_auto_repair=True,
        )

    if not settings.small_job_nodes:
        return [add("System", settings.system_nodes, labels={}, taints={})]
    return [
        add("System", settings.system_nodes, labels=CONTROLLER_NODES, taints={}),
        add("SmallJobs", settings.small_job_nodes, labels=SMALL_JOB_NODES, taints=SMALL_JOB_NODES),
    ]


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
