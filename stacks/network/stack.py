"""The VPC: private subnets for nodes and functions, one NAT gateway, and security groups.

Zones are given by **id**, which means the same place in every account, and CloudFormation places the subnets by it.
So nothing has to be looked up, and the template is the same wherever it is deployed.

NAT gateway or interface endpoints? Private nodes and functions call about a dozen AWS services (eks, eks-auth, sts,
ec2, ecr.api, ecr.dkr, logs, monitoring, kms, sns, states, dynamodb). At 0.01 USD an hour and zone for an interface
endpoint that is 0.12 USD an hour in one zone and 0.24 in two; a NAT gateway is 0.045 USD an hour, 0.005 for its public
address and 0.045 a GB (AWS PrivateLink and Amazon VPC price lists, us-west-2, November 2026). The charts' images come
from public registries, which endpoints do not reach, so the gateway is needed in any case. What would make its GBs
expensive (data sets, artifacts, and the layers of images in ECR, which lie in S3) goes through the gateway endpoint of
S3, which is free.
"""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from stacks.shared.custom_resources import settle_custom_resources
from stacks.shared.log_keys import let_logs_use
from trainflow.configuration.deployment import Configuration

HTTPS = ec2.Port.tcp(443)

PRIVATE_SUBNET_BITS = 3
"""Private subnets take an eighth of the VPC each: 8,190 addresses of a /16."""

PUBLIC_SUBNET_BITS = 28
"""Public subnets have 16 addresses, since they contain only the NAT gateway."""


class NetworkStack(cdk.Stack):
    """The network of the cluster, in a stack of its own, so that it exists until everything that needs it is deleted.

    The cluster's custom resources delete their manifests through these routes; without the routes they would run into
    their time limits.
    """

    def __init__(self, scope: Construct, construct_id: str, *, configuration: Configuration, **kwargs: Any) -> None:
        if configuration.network is None:
            raise ValueError("a deployment with an existing cluster has no network of its own")
        self._configuration = configuration
        self._network = configuration.network
        super().__init__(scope, construct_id, **kwargs)
        self.log_key = self._make_log_key()
        """Key of the log groups of this stack and of those that stand on it."""
        self.vpc = self._make_vpc()
        for subnet in (*self.vpc.private_subnets, *self.vpc.public_subnets):
            _place_by_zone_id(subnet)
        self.private_subnets = self._private_subnets()
        self.training_subnet = self.private_subnets[0]
        self._log_flows()
        self.efa_security_group = self._make_efa_security_group()
        self.lambda_security_group = self._make_lambda_security_group()
        settle_custom_resources(self, key=self.log_key)
        if configuration.keeps_lustre:
            self._stay_under_the_file_system()

    @property
    def availability_zones(self) -> list[str]:
        """The configured zones, so that CDK does not ask an account for its own."""
        return [self._network.zone_id, self._network.second_zone_id]

    def _make_log_key(self) -> kms.Key:
        keep = self._configuration.production
        key = kms.Key(
            self,
            "LogKey",
            description="Trainflow: logs of the network, the cluster and the nodes",
            enable_key_rotation=True,
            removal_policy=cdk.RemovalPolicy.RETAIN if keep else cdk.RemovalPolicy.DESTROY,
        )
        let_logs_use(key, (f"{self._configuration.name}-*",))
        return key

    def _make_vpc(self) -> ec2.Vpc:
        bits = int(self._network.cidr.split("/")[1])
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(self._network.cidr),
            availability_zones=self.availability_zones,
            # Decision 9: one NAT gateway, since interface endpoints cost more than the traffic.
            nat_gateways=1,
            # In the zone where training happens: its traffic stays in the zone.
            nat_gateway_subnets=ec2.SubnetSelection(
                availability_zones=[self._network.zone_id], subnet_group_name="public"
            ),
            restrict_default_security_group=True,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="private",
                    subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS,
                    cidr_mask=bits + PRIVATE_SUBNET_BITS,
                ),
                ec2.SubnetConfiguration(
                    name="public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=PUBLIC_SUBNET_BITS,
                    map_public_ip_on_launch=False,
                ),
            ],
            # It has no policy: nodes read ECR's layers, Amazon Linux's packages and public data sets from buckets that
            # are not ours. What a principal may do with a bucket is said in its role.
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
        )
        for subnet in vpc.public_subnets:
            acknowledge(subnet, *in_both_baselines("VPCNoUnrestrictedRouteToIGW"), reason=Reason.NAT_GATEWAY_ONLY)
        return vpc

    def _stay_under_the_file_system(self) -> None:
        """A file system that is kept has an interface in its subnet: neither that nor the VPC could be deleted.

        Both cost nothing; the NAT gateway and everything else go.
        """
        for kept in (self.vpc, self.training_subnet):
            resource = kept.node.default_child
            if isinstance(resource, cdk.CfnResource):
                resource.apply_removal_policy(cdk.RemovalPolicy.RETAIN)

    def _private_subnets(self) -> list[ec2.ISubnet]:
        by_zone = {subnet.availability_zone: subnet for subnet in self.vpc.private_subnets}
        return [by_zone[self._network.zone_id], by_zone[self._network.second_zone_id]]

    def _log_flows(self) -> None:
        """Flow logs: which addresses communicated. EFA's traffic bypasses the kernel and is not in them; S3's and
        Lustre's is."""
        keep = self._configuration.production
        group = logs.LogGroup(
            self,
            "FlowLog",
            encryption_key=self.log_key,
            retention=logs.RetentionDays.ONE_YEAR if keep else logs.RetentionDays.ONE_MONTH,
            removal_policy=cdk.RemovalPolicy.RETAIN if keep else cdk.RemovalPolicy.DESTROY,
        )
        flows = self.vpc.add_flow_log("Flows", destination=ec2.FlowLogDestination.to_cloud_watch_logs(group))
        acknowledge(flows, *in_both_baselines("IAMNoInlinePolicy"), reason=Reason.POLICY_OF_ONE_ROLE)

    def _make_efa_security_group(self) -> ec2.SecurityGroup:
        """EFA wants all traffic allowed from and **to** the group itself; its packets match no CIDR rule.

        The egress rule is a resource of its own because the L2 construct drops it beside `allow_all_outbound`.
        """
        group = ec2.SecurityGroup(
            self,
            "Efa",
            vpc=self.vpc,
            description="Training nodes among themselves (EFA)",
            allow_all_outbound=True,
        )
        enters = ec2.CfnSecurityGroupIngress(
            self,
            "EfaFromItself",
            group_id=group.security_group_id,
            source_security_group_id=group.security_group_id,
            ip_protocol="-1",
            description="EFA from the group itself",
        )
        acknowledge(enters, *in_both_baselines("EC2RestrictedCommonPorts"), reason=Reason.FROM_ITSELF_ALONE)
        ec2.CfnSecurityGroupEgress(
            self,
            "EfaToItself",
            group_id=group.security_group_id,
            destination_security_group_id=group.security_group_id,
            ip_protocol="-1",
            description="EFA to the group itself",
        )
        return group

    def _make_lambda_security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "Functions",
            vpc=self.vpc,
            description="Functions that talk to the API server of the cluster",
            allow_all_outbound=False,
        )
        group.add_egress_rule(ec2.Peer.any_ipv4(), HTTPS, "The API server, and AWS services")
        return group


# Decision 8: zones by id, so that synthesis looks nothing up.
def _place_by_zone_id(subnet: ec2.ISubnet) -> None:
    """Replace the zone's name, which the L2 construct writes, by its id."""
    resource = subnet.node.default_child
    if not isinstance(resource, ec2.CfnSubnet):
        raise TypeError("a subnet is made of AWS::EC2::Subnet")
    resource.availability_zone_id = resource.availability_zone
    resource.availability_zone = None
