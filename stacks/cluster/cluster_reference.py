"""Properties of the cluster that functions need, whether the cluster is deployed here or exists already."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from trainflow.configuration.deployment import Configuration, ExistingCluster


@dataclass(frozen=True, kw_only=True)
class ClusterPlacement:
    """Network of a function that reaches a private API server."""

    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    security_group: ec2.ISecurityGroup


@dataclass(frozen=True, kw_only=True)
class ClusterReference:
    """Properties of the cluster that functions need."""

    name: str
    arn: str
    placement: ClusterPlacement | None
    """Network of the functions; None: the API server is public, and functions run outside of any VPC."""


def existing_cluster(scope: cdk.Stack, configuration: Configuration) -> ClusterReference:
    """An existing cluster, as the configuration describes it. No AWS call is made."""
    existing = configuration.existing_cluster
    if existing is None:
        raise ValueError("the configuration names no existing cluster")
    arn = scope.format_arn(service="eks", resource="cluster", resource_name=existing.name)
    return ClusterReference(name=existing.name, arn=arn, placement=_existing_placement(scope, existing))


def _existing_placement(scope: cdk.Stack, existing: ExistingCluster) -> ClusterPlacement | None:
    if existing.vpc_id is None or existing.security_group_id is None:
        return None
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "ExistingVpc",
        vpc_id=existing.vpc_id,
        # The zones are not read, but CDK needs one for each subnet.
        availability_zones=[f"zone-{number}" for number, _ in enumerate(existing.subnet_ids)],
        private_subnet_ids=list(existing.subnet_ids),
    )
    group = ec2.SecurityGroup.from_security_group_id(
        scope, "ExistingSecurityGroup", existing.security_group_id, mutable=False
    )
    return ClusterPlacement(vpc=vpc, subnets=ec2.SubnetSelection(subnets=vpc.private_subnets), security_group=group)
