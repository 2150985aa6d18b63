"""The launch template of a training node group: network cards, placement, purchase, disk, metadata service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import CfnTag
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainflow.configuration.nodes import Mode
from trainflow.nodes.instances import InstanceType

Template = ec2.CfnLaunchTemplate

ACCELERATED_DISK_GIB = 512
"""An image for Neuron or CUDA takes tens of GiB unpacked, and a node keeps several beside their logs and core dumps."""

DISK_GIB = 100

ACCELERATED_DISK_MIBPS = 500
"""gp3 brings 125; unpacking an image on a node that costs 21.50 USD an hour should not wait for the disk."""

METADATA_HOPS = 1
"""The instance metadata service answers only the node and pods in its network namespace, as AWS recommends with Pod
Identity (EKS best practices, identity and access management): a training pod cannot take the node's role, and with it
those of the other pods of its node.

Agents that ask it share the node's network: CloudWatch agent and Fluent Bit (github.com/aws-observability/helm-charts,
chart 6.4.0), VPC CNI and EFA plugin (github.com/aws/eks-charts). The FSx driver does not, and takes the instance from
the Kubernetes API instead (github.com/kubernetes-sigs/aws-fsx-csi-driver, `pkg/cloud/metadata.go`, pull request 397).
Neuron monitor does not either: it cannot label its metrics with the instance.
"""


class NodeTemplate(Construct):
    """A launch template, and the placement group of its instances where they have one."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        tags: Mapping[str, str],
        instance: InstanceType,
        mode: Mode,
        reservation_id: str | None,
        security_groups: Sequence[ec2.ISecurityGroup],
        efa_security_group: ec2.ISecurityGroup,
        names_type: bool = True,
        subnet_id: str | None = None,
        user_data: str | None = None,
    ) -> None:
        """
        Args:
            scope: Construct that the template is a part of.
            construct_id: The id of this construct.
            tags: Tags of the instances, their volumes and network interfaces.
            instance: The instance type.
            mode: How instances are purchased.
            reservation_id: The reservation or capacity block that instances use.
            security_groups: The security groups of every interface.
            efa_security_group: The security group that is added to interfaces with EFA.
            names_type: Whether the template names the instance type; else the service that starts the instance does.
            subnet_id: The subnet of every EFA interface, for services that name none themselves.
            user_data: The script that the instance runs at its start, in base64.
        """
        super().__init__(scope, construct_id)
        efa = instance.efa_interfaces > 0
        groups = [group.security_group_id for group in (*security_groups, *([efa_security_group] if efa else []))]
        self.resource = Template(
            self,
            "Resource",
            launch_template_data=Template.LaunchTemplateDataProperty(
                # Here and not in the node group: with the type in both places EKS refuses the group.
                instance_type=instance.name if names_type else None,
                security_group_ids=None if efa else groups,
                network_interfaces=efa_interfaces(instance, groups, subnet_id) if efa else None,
                user_data=user_data,
                placement=self._placement(instance, mode),
                instance_market_options=_market(mode),
                capacity_reservation_specification=_reservation(reservation_id),
                block_device_mappings=[root_disk(instance)],
                metadata_options=Template.MetadataOptionsProperty(
                    http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=METADATA_HOPS
                ),
                # Tags of the stack end at the node group; these reach the bill.
                tag_specifications=[
                    Template.TagSpecificationProperty(
                        resource_type=kind, tags=[CfnTag(key=key, value=value) for key, value in tags.items()]
                    )
                    for kind in ("instance", "volume", "network-interface")
                ],
            ),
        )

    def _placement(self, instance: InstanceType, mode: Mode) -> Template.PlacementProperty | None:
        """Place nodes that communicate over EFA close together.

        A capacity block is placed already, and a reservation was made inside of a placement group or outside of
        any; a placement group of ours would match neither.
        """
        if not instance.efa_interfaces or mode in ("capacity-block", "reservation"):
            return None
        group = ec2.CfnPlacementGroup(self, "Placement", strategy="cluster")
        return Template.PlacementProperty(group_name=group.attr_group_name)


def efa_interfaces(
    instance: InstanceType, security_group_ids: Sequence[str], subnet_id: str | None = None
) -> list[Template.NetworkInterfaceProperty]:
    """One interface per network card: the first is the node's primary interface, the others are device 1 of their
    card. Cards before the first with EFA have an ordinary interface (p6-b300: EC2 DescribeInstanceTypes)."""
    return [
        Template.NetworkInterfaceProperty(
            network_card_index=card,
            device_index=0 if card == 0 else 1,
            interface_type="interface" if card < instance.first_efa_card else "efa",
            groups=list(security_group_ids),
            subnet_id=subnet_id,
            delete_on_termination=True,
        )
        for card in range(instance.first_efa_card + instance.efa_interfaces)
    ]


def root_disk(instance: InstanceType) -> Template.BlockDeviceMappingProperty:
    """Root volume of Amazon Linux 2023, encrypted with the account's EBS key, which Auto Scaling may use without a
    grant."""
    return Template.BlockDeviceMappingProperty(
        device_name="/dev/xvda",
        ebs=Template.EbsProperty(
            volume_type="gp3",
            volume_size=ACCELERATED_DISK_GIB if instance.accelerated else DISK_GIB,
            throughput=ACCELERATED_DISK_MIBPS if instance.accelerated else None,
            encrypted=True,
            delete_on_termination=True,
        ),
    )


def _market(mode: Mode) -> Template.InstanceMarketOptionsProperty | None:
    """Purchase options; Spot is set in the node group, and EKS refuses it in the template."""
    return Template.InstanceMarketOptionsProperty(market_type="capacity-block") if mode == "capacity-block" else None


def _reservation(reservation_id: str | None) -> Template.CapacityReservationSpecificationProperty | None:
    if reservation_id is None:
        return None
    target = Template.CapacityReservationTargetProperty(capacity_reservation_id=reservation_id)
    return Template.CapacityReservationSpecificationProperty(capacity_reservation_target=target)
