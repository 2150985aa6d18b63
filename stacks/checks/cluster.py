"""Rules about access from outside, and about nodes that cost money while no job runs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from stacks.checks.templates import Finding, Resource, Templates
from stacks.slurm.nodes import LOGIN
from trainflow.configuration.deployment import WIDEST_PREFIX

SLURM_NODES = "AWS::PCS::ComputeNodeGroup"

THE_WORLD = ("0.0.0.0/0", "::/0")


def nothing_lets_the_world_in(templates: Templates) -> Iterator[Finding]:
    """No ingress from all addresses, whatever the port."""
    for group in templates.resources("AWS::EC2::SecurityGroup"):
        for rule in group.properties.get("SecurityGroupIngress") or []:
            yield from _from_everywhere(group, rule)
    for rule in templates.resources("AWS::EC2::SecurityGroupIngress"):
        yield from _from_everywhere(rule, rule.properties)


def _from_everywhere(resource: Resource, rule: Any) -> Iterator[Finding]:
    for field in ("CidrIp", "CidrIpv6"):
        if rule.get(field) in THE_WORLD:
            yield Finding.at(resource, "open-to-the-world", f"ingress is open to {rule[field]}.")


def api_server_is_not_public(templates: Templates) -> Iterator[Finding]:
    """The API server is private, or public for named networks; by default, EKS opens it to all addresses."""
    for cluster in templates.resources("AWS::EKS::Cluster"):
        access = cluster.properties.get("ResourcesVpcConfig") or {}
        if access.get("EndpointPublicAccess", True) is False:
            continue
        networks = access.get("PublicAccessCidrs") or list(THE_WORLD)
        for network in networks:
            if _prefix(network) < WIDEST_PREFIX:
                yield Finding.at(cluster, "open-to-the-world", f"the API server can be reached from {network}.")


def _prefix(network: Any) -> int:
    try:
        return ipaddress.ip_network(network).prefixlen
    except ValueError:
        return 0  # an intrinsic function could become anything


def nodes_are_off(templates: Templates) -> Iterator[Finding]:
    """Node groups are deployed empty; runs request their nodes, and Slurm requests those of its jobs."""
    for group in templates.resources("AWS::EKS::Nodegroup"):
        desired = (group.properties.get("ScalingConfig") or {}).get("DesiredSize")
        if desired != 0:
            yield Finding.at(group, "nodes-off", f"the node group is deployed with desired size {desired}.")
    for group in templates.resources(SLURM_NODES):
        least = (group.properties.get("ScalingConfiguration") or {}).get("MinInstanceCount")
        if least != 0 and not _is_login_node(group):
            yield Finding.at(group, "nodes-off", f"{least} nodes of Slurm are up while no job waits.")


def _is_login_node(group: Resource) -> bool:
    """At most one login node, which `slurm.pcs.login_node` asks for."""
    limits = group.properties.get("ScalingConfiguration") or {}
    return bool(group.properties.get("Name") == LOGIN and limits.get("MaxInstanceCount") == 1)


def reserved_capacity_has_no_placement_group(templates: Templates) -> Iterator[Finding]:
    """EC2 places a capacity block already, and refuses to start its instances in a placement group of ours."""
    blocks = {
        templates.origin(group.stack, (group.properties.get("LaunchTemplate") or {}).get("Id"))
        for group in templates.resources("AWS::EKS::Nodegroup")
        if group.properties.get("CapacityType") == "CAPACITY_BLOCK"
    } | {
        templates.origin(group.stack, (group.properties.get("CustomLaunchTemplate") or {}).get("TemplateId"))
        for group in templates.resources(SLURM_NODES)
        if group.properties.get("PurchaseOption") == "CAPACITY_BLOCK"
    }
    for template in templates.resources("AWS::EC2::LaunchTemplate"):
        data = template.properties.get("LaunchTemplateData") or {}
        if not (data.get("Placement") or {}).get("GroupName") and not (data.get("Placement") or {}).get("GroupId"):
            continue
        market = (data.get("InstanceMarketOptions") or {}).get("MarketType")
        target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget")
        if template.origin in blocks or market == "capacity-block" or target:
            yield Finding.at(template, "placement", "reserved capacity is asked for inside a placement group.")


def pods_do_not_reach_the_metadata_service(templates: Templates) -> Iterator[Finding]:
    """With a hop limit above 1, a pod could take the node's role; without one, the account's or the AMI's limit
    applies."""
    for template in templates.resources("AWS::EC2::LaunchTemplate"):
        options = (template.properties.get("LaunchTemplateData") or {}).get("MetadataOptions") or {}
        hops, tokens = options.get("HttpPutResponseHopLimit"), options.get("HttpTokens")
        if hops != 1:
            yield Finding.at(
                template, "metadata", f"the metadata service's hop limit is {hops}, and pods reach it; set 1."
            )
        if tokens != "required":
            yield Finding.at(template, "metadata", "the metadata service answers without a token; require one.")
