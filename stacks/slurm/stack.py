"""A Slurm cluster beside the EKS cluster, on AWS's Parallel Computing Service: for runs with `compute.backend: slurm`.

A queue for each configured instance type and one of small nodes, all at zero until a job waits; they mount the same
file system, in the same zone, as the pods do. Functions reach slurmrestd through a rule of the orchestration stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from constructs import Construct

from stacks.capacity.launch_template import NodeTemplate
from stacks.cluster.permanent_nodes import INSTANCE_TYPES as SYSTEM_INSTANCE_TYPES
from stacks.shared.aws_calls import AwsCalls
from stacks.slurm.access import SlurmReference
from stacks.slurm.controller import API_PORT, Controller
from stacks.slurm.nodes import LOGIN, SHARED_FOLDER, NodeGroup, NodeProfile, claims, mount, queue_name
from trainflow.configuration.deployment import Configuration
from trainflow.configuration.nodes import Mode
from trainflow.configuration.slurm import LoginNode, Pcs
from trainflow.nodes.instances import SYSTEM_INSTANCE, InstanceType

if TYPE_CHECKING:
    from stacks.network.stack import NetworkStack
    from stacks.storage.stack import StorageStack

SYSTEM_QUEUE = "system"
"""Queue and nodes for staging and publishing."""


class SlurmStack(cdk.Stack):
    """Controller, queues and nodes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        network: NetworkStack,
        storage: StorageStack,
        settings: Pcs,
        **kwargs: Any,
    ) -> None:
        if storage.shared is None:
            raise ValueError("Slurm's nodes have no file system to mount")
        super().__init__(scope, construct_id, **kwargs)
        self._configuration, self._network, self._settings = configuration, network, settings
        self._controller = Controller(
            self,
            "Controller",
            name=configuration.name,
            settings=settings,
            vpc=network.vpc,
            subnet=network.training_subnet,
            calls=AwsCalls(
                self, "Calls", description="Trainflow: where the Slurm controller listens", key=network.log_key
            ),
        )
        self._profile = NodeProfile(self, "Profile", controller=self._controller, storage=storage)
        self._security_groups = [self._controller.node_security_group, storage.shared.client_security_group]
        self._shared = storage.shared
        self._make_system_queue()
        for queue in settings.queues:
            self._make_queue(
                queue_name(queue.instance_type),
                instance=queue.instance,
                max_nodes=queue.max_nodes,
                mode=queue.mode,
                reservation_id=queue.reservation_id,
                local_disks=queue.uses_local_disks,
            )
        if settings.login_node is not None:
            self._make_login_node(settings.login_node, storage)
        self.reference = self._refer()
        cdk.CfnOutput(self, "Cluster", value=self._controller.id, description="As `aws pcs get-cluster` calls it")

    def _make_system_queue(self) -> None:
        self._make_queue(
            SYSTEM_QUEUE,
            instance=SYSTEM_INSTANCE,
            instance_types=SYSTEM_INSTANCE_TYPES,
            max_nodes=self._settings.system_nodes,
        )

    def _make_queue(
        self,
        name: str,
        *,
        instance: InstanceType,
        instance_types: tuple[str, ...] = (),
        max_nodes: int,
        mode: Mode = "on-demand",
        reservation_id: str | None = None,
        local_disks: bool = False,
    ) -> None:
        nodes = self._make_nodes(
            name,
            instance=instance,
            instance_types=instance_types,
            max_nodes=max_nodes,
            mode=mode,
            reservation_id=reservation_id,
            local_disks=local_disks,
            profile=self._profile,
        )
        nodes.add_queue()

    def _make_login_node(self, settings: LoginNode, storage: StorageStack) -> None:
        """One node without a queue, with a role of its own, so that users do not need a shell on the nodes of jobs."""
        self._make_nodes(
            LOGIN,
            instance=settings.instance,
            min_nodes=1,
            max_nodes=1,
            profile=NodeProfile(self, "LoginProfile", controller=self._controller, storage=storage, sessions=True),
        )

    def _make_nodes(
        self,
        name: str,
        *,
        instance: InstanceType,
        profile: NodeProfile,
        instance_types: tuple[str, ...] = (),
        min_nodes: int = 0,
        max_nodes: int,
        mode: Mode = "on-demand",
        reservation_id: str | None = None,
        local_disks: bool = False,
    ) -> NodeGroup:
        deployment = self._configuration.name
        template = NodeTemplate(
            self,
            f"Template-{name}",
            tags={"Name": f"{deployment}-slurm-{name}", "trainflow:deployment": deployment},
            instance=instance,
            mode=mode,
            reservation_id=reservation_id,
            security_groups=self._security_groups,
            efa_security_group=self._network.efa_security_group,
            # PCS names the type itself, but for a capacity block it compares it with the template's.
            names_type=mode == "capacity-block",
            subnet_id=self._network.training_subnet.subnet_id,
            user_data=mount(self._shared, local_disks=local_disks),
        )
        return NodeGroup(
            self,
            f"Queue-{name}",
            name=name,
            instance_types=instance_types or (instance.name,),
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            mode=mode,
            ami_id=self._settings.ami_id,
            controller=self._controller,
            profile=profile,
            template=template,
            subnet=self._network.training_subnet,
        )

    def _refer(self) -> SlurmReference:
        settings = self._settings
        return SlurmReference(
            api_url=self._controller.api_url,
            key_secret_arn=self._controller.key_secret_arn,
            user=settings.user,
            claims=claims(settings.user),
            system_queue=SYSTEM_QUEUE,
            shared_folder=SHARED_FOLDER,
            environment=settings.environment,
            program_folder=settings.program_folder,
            security_group_id=self._controller.security_group.security_group_id,
            api_port=API_PORT,
        )
