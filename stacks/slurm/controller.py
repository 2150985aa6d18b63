"""Slurm's controller as PCS runs it: slurmctld and slurmrestd, in an account of AWS's with an interface in our
subnet."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_pcs as pcs
from constructs import Construct

from stacks.shared.aws_calls import AwsCalls, Call
from trainflow.configuration.slurm import Pcs

SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818
API_PORT = 6820
"""Slurm's own ports, which PCS leaves as they are (AWS PCS user guide, security groups and REST API)."""

ADDRESS = "cluster.endpoints.0.privateIpAddress"
"""Path of the address in the answer of GetCluster. The order of the endpoints is not fixed, but there is one network
interface, and so one address for slurmctld and slurmrestd."""

KEY = "cluster.slurmConfiguration.jwtAuth.jwtKey.secretArn"


class Controller(Construct):
    """The PCS cluster, its security group and that of its nodes, and its address."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        settings: Pcs,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        calls: AwsCalls,
    ) -> None:
        """
        Args:
            scope: The stack.
            construct_id: The id of this construct.
            name: The name of the cluster.
            settings: Slurm's version, the controller's size and the idle time of nodes.
            vpc: The VPC of the cluster.
            subnet: The subnet of the nodes and the file system; PCS takes one.
            calls: Calls that read the properties of the new cluster from PCS.
        """
        super().__init__(scope, construct_id)
        self.security_group = ec2.SecurityGroup(
            self, "ControllerGroup", vpc=vpc, description="Slurm controller", allow_all_outbound=True
        )
        self.node_security_group = ec2.SecurityGroup(
            self, "NodeGroup", vpc=vpc, description="Slurm nodes", allow_all_outbound=True
        )
        self._let_slurm_talk()
        self.resource = pcs.CfnCluster(
            self,
            "Resource",
            name=name,
            size=settings.size,
            scheduler=pcs.CfnCluster.SchedulerProperty(type="SLURM", version=settings.version),
            networking=pcs.CfnCluster.NetworkingProperty(
                subnet_ids=[subnet.subnet_id], security_group_ids=[self.security_group.security_group_id]
            ),
            slurm_configuration=pcs.CfnCluster.SlurmConfigurationProperty(
                slurm_rest=pcs.CfnCluster.SlurmRestProperty(mode="STANDARD"),
                scale_down_idle_time_in_seconds=settings.idle_minutes * 60,
            ),
        )
        self._ask(calls, version=settings.version)

    @property
    def id(self) -> str:
        """Id of the cluster, which node groups and queues refer to."""
        return self.resource.attr_id

    def _let_slurm_talk(self) -> None:
        """Security group rules that PCS documents: nodes register with the controller, which calls them; steps are
        started from node to node.

        `srun` listens on ports of its own choice, so nodes are open to each other.
        """
        controller, nodes = self.security_group, self.node_security_group
        controller.connections.allow_from(nodes, ec2.Port.tcp(SLURMCTLD_PORT), "Nodes to slurmctld")
        nodes.connections.allow_from(controller, ec2.Port.tcp(SLURMD_PORT), "slurmctld to slurmd")
        nodes.add_ingress_rule(nodes, ec2.Port.all_tcp(), "slurmd, srun and the programs of a job")

    def _ask(self, calls: AwsCalls, *, version: str) -> None:
        """Read the endpoint and the secret by a call: CloudFormation passes on neither a part of a list nor a secret's
        name.

        The call is repeated when Slurm's version changes, since the address may change with it.
        """
        calls.allow(iam.PolicyStatement(actions=["pcs:GetCluster"], resources=[self.resource.attr_arn]))
        found = calls.call(
            self,
            f"Endpoint-{version}",
            Call("pcs", "GetCluster", {"clusterIdentifier": self.resource.attr_id}, output_paths=[ADDRESS, KEY]),
        )
        calls.name_role_once()
        self.api_url = cdk.Fn.join("", ["http://", found.get_response_field(ADDRESS), f":{API_PORT}"])
        self.key_secret_arn = found.get_response_field(KEY)
