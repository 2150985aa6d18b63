"""Nodes to train on: a managed node group for each configured instance type, empty until a run claims nodes.

The functions find a group by the name that its instance type has in `trainflow.nodes.instances.nodegroup_name`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from constructs import Construct

from stacks.capacity import node_config
from stacks.capacity.launch_template import NodeTemplate
from stacks.capacity.nodegroup import TrainingNodegroup
from stacks.capacity.nodegroup_calls import NodegroupCalls
from trainflow.configuration.deployment import Configuration
from trainflow.configuration.nodes import Nodegroup
from trainflow.nodes.instances import nodegroup_name

if TYPE_CHECKING:
    from stacks.cluster.stack import ClusterStack
    from stacks.network.stack import NetworkStack


class CapacityStack(cdk.Stack):
    """Training node groups with their launch templates, all in the zone of the file system."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        network: NetworkStack,
        cluster: ClusterStack,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self._configuration = configuration
        self._network = network
        self._cluster = cluster
        self._calls = NodegroupCalls(self, "Calls", cluster_name=configuration.cluster_name, key=network.log_key)
        self.nodegroups = {
            settings.instance_type: self._make_nodegroup(settings) for settings in configuration.capacity.nodegroups
        }
        self._calls.name_role_once()

    def _make_nodegroup(self, settings: Nodegroup) -> TrainingNodegroup:
        name = nodegroup_name(settings.instance_type)
        template = NodeTemplate(
            self,
            f"Template-{name}",
            tags={"Name": f"{self._configuration.name}-{name}", "trainflow:deployment": self._configuration.name},
            instance=settings.instance,
            mode=settings.mode,
            reservation_id=settings.reservation_id,
            security_groups=self._cluster.node_security_groups,
            efa_security_group=self._network.efa_security_group,
            user_data=node_config.user_data(settings.instance, local_disks=settings.uses_local_disks),
        )
        return TrainingNodegroup(
            self,
            name,
            settings=settings,
            cluster_name=self._cluster.cluster.cluster_name,
            kubernetes_version=self._configuration.cluster.kubernetes_version,
            neuron_ami_release=self._configuration.capacity.neuron_ami_release,
            node_role=self._cluster.node_role,
            subnet_id=self._network.training_subnet.subnet_id,
            template=template,
            calls=self._calls,
        )
