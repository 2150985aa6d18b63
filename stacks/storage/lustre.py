"""FSx for Lustre beside the nodes, linked to the buckets, with two security groups: the file system's and its clients'.

The folders, and the buckets that they are linked to:

| folder on the file system | linked to | why |
|---|---|---|
| `/data` | `data/` of the data bucket, import only | uploads show up; what pods unpack is not sent back |
| `/runs` | `file-system/runs/` of the artifact bucket, export only | a copy of checkpoints that outlives the disks |
| `/cache` | nothing | compiled graphs can be made again |

`trainer.publish` writes the artifacts of a finished run to `runs/<run id>/` of the same bucket, each with its checksum.
The export follows the file system instead: it renames, replaces and deletes as the program does. Under one prefix, the
deletion of an old run's folder to make room would delete the published artifacts too; so the prefixes are two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainflow.configuration.deployment import Lustre
from trainflow.protocol.pods import DATA_MOUNT, RUNS_MOUNT

DATA_PREFIX = "data/"
"""Prefix of the data bucket that appears below `/data`."""

EXPORT_PREFIX = "file-system/runs/"
"""Prefix of the artifact bucket for the copy of `/runs`."""

PORTS = ((988, 988), (1018, 1023))
"""TCP, both ways: FSx for Lustre user guide, 'File system access control with Amazon VPC'."""

NOTHING_LEAVES = {
    "CidrIp": "255.255.255.255/32",
    "IpProtocol": "icmp",
    "FromPort": 252,
    "ToPort": 86,
    "Description": "No traffic",
}
"""An address that no host has; CDK writes such a rule for groups without egress."""

LUSTRE_VERSION = "2.15"
"""The one whose clients AL2023 carries, and that has a metadata configuration."""

FILE_EVENTS = ["NEW", "CHANGED", "DELETED"]


@dataclass(frozen=True, kw_only=True)
class SharedFileSystem:
    """Facts for mounting it."""

    file_system_id: str
    dns_name: str
    mount_name: str
    security_group: ec2.ISecurityGroup
    """The file system's own; nothing joins it."""
    client_security_group: ec2.ISecurityGroup
    """Nodes that mount it join this one, beside the cluster's own: pods mount through their node's interface."""
    size_gib: int
    linked_url: str
    """`s3://bucket/prefix/` of what it shows below `/data`."""


class LustreFileSystem(Construct):
    """A PERSISTENT_2 file system in one subnet."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Lustre,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        key: kms.IKey,
        log_group: logs.ILogGroup,
        data: s3.Bucket,
    ) -> None:
        super().__init__(scope, construct_id)
        self._data = data
        self._links: list[fsx.CfnDataRepositoryAssociation] = []
        self._own, self._clients = self._security_groups(vpc)
        self._file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=settings.size_gib,
            kms_key_id=key.key_arn,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[self._own.security_group_id],
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2",
                per_unit_storage_throughput=settings.throughput_mbps_per_tib,
                data_compression_type="LZ4",
                # As many metadata operations as the size brings along without extra cost.
                metadata_configuration=fsx.CfnFileSystem.MetadataConfigurationProperty(mode="AUTOMATIC"),
                # What could not be imported or exported is said here and nowhere else.
                log_configuration=fsx.CfnFileSystem.LogConfigurationProperty(
                    level="WARN_ERROR", destination=_arn_without_star(log_group)
                ),
            ),
            tags=[cdk.CfnTag(key="Name", value=cdk.Stack.of(self).stack_name)],
        )
        # FSx checks the rules when it creates the file system, and refuses one that Lustre's ports do not reach. The
        # rules are children of their groups (github.com/aws/aws-parallelcluster, issues 1198 and 6181); its own group
        # the file system names, and so waits for it anyway.
        rules = [child for child in self._own.node.children if child.node.id != "Resource"]
        self._file_system.node.add_dependency(*rules, self._clients)
        # Its network interface uses the group, and its data the key: both have to stay as long as it does.
        policy = cdk.RemovalPolicy.DESTROY if settings.on_destroy == "delete" else cdk.RemovalPolicy.RETAIN
        cdk.RemovalPolicies.of(self).apply(policy)
        self.shared = SharedFileSystem(
            file_system_id=self._file_system.ref,
            dns_name=self._file_system.attr_dns_name,
            mount_name=self._file_system.attr_lustre_mount_name,
            security_group=self._own,
            client_security_group=self._clients,
            size_gib=settings.size_gib,
            linked_url=data.s3_url_for_object(DATA_PREFIX),
        )

    def import_data(self, scope: Construct) -> None:
        """Show what lies below `data/` of the bucket in `/data`; contents are fetched when they are first read."""
        events = fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty(events=FILE_EVENTS)
        self._link(
            scope,
            "ImportData",
            self._data,
            file_system_path=DATA_MOUNT,
            data_repository_path=self.shared.linked_url,
            batch_import_meta_data_on_create=True,
            s3=fsx.CfnDataRepositoryAssociation.S3Property(auto_import_policy=events),
        )

    def export_to(self, scope: Construct, bucket: s3.Bucket) -> None:
        """Keep a copy of `/runs` in the bucket."""
        events = fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty(events=FILE_EVENTS)
        self._link(
            scope,
            "ExportRuns",
            bucket,
            file_system_path=RUNS_MOUNT,
            data_repository_path=bucket.s3_url_for_object(EXPORT_PREFIX),
            s3=fsx.CfnDataRepositoryAssociation.S3Property(auto_export_policy=events),
        )

    def _link(self, scope: Construct, construct_id: str, bucket: s3.Bucket, **properties: Any) -> None:
        """Link the file system to a bucket, after the link before it.

        Links that are created at the same time can end in FAILED, because FSx changes the file system for each
        (github.com/hashicorp/terraform-provider-aws, issue 24678).
        """
        link = fsx.CfnDataRepositoryAssociation(scope, construct_id, file_system_id=self._file_system.ref, **properties)
        _cut_before_emptying(link, bucket)
        if self._links:
            link.add_resource_dependency(self._links[-1])
        self._links.append(link)

    def _security_groups(self, vpc: ec2.IVpc) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup]:
        own = self._closed_group("Servers", vpc, "FSx for Lustre file system")
        clients = self._closed_group("Clients", vpc, "Nodes that mount the file system")
        for first, last in PORTS:
            ports = ec2.Port.tcp_range(first, last)
            own.connections.allow_internally(ports, "Lustre servers among themselves")
            own.connections.allow_from(clients, ports, "Lustre clients to servers")
            clients.connections.allow_from(own, ports, "Lustre servers call clients back")
        return own, clients

    def _closed_group(self, construct_id: str, vpc: ec2.IVpc, description: str) -> ec2.SecurityGroup:
        """A group with no way out but its rules.

        They are resources of their own, because the groups refer to each other. A group without any rule inside is
        opened by EC2 to
        everywhere, and CDK leaves out its own rule against that as soon as there are others.
        """
        group = ec2.SecurityGroup(self, construct_id, vpc=vpc, description=description, allow_all_outbound=False)
        resource = group.node.default_child
        if not isinstance(resource, ec2.CfnSecurityGroup):
            raise TypeError("a security group is made of AWS::EC2::SecurityGroup")
        resource.add_property_override("SecurityGroupEgress", [NOTHING_LEAVES])
        return group


def _cut_before_emptying(link: fsx.CfnDataRepositoryAssociation, bucket: s3.Bucket) -> None:
    """Remove the link first: a file exported into a bucket that was just emptied would keep it from being deleted."""
    for child in bucket.node.children:
        if child.node.id != "Resource":
            link.node.add_dependency(child)


def _arn_without_star(log_group: logs.ILogGroup) -> str:
    """The ARN of a log group as FSx names it; `Fn::GetAtt` gives one that ends with `:*`, which means its streams."""
    return cdk.Stack.of(log_group).format_arn(
        service="logs",
        resource="log-group",
        resource_name=log_group.log_group_name,
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )
