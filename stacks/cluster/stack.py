"""The EKS cluster: its control plane, the permanent nodes, and the software that runs need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer
from constructs import Construct, IConstruct

from stacks.cluster.addons import BEFORE_NODES, CONTAINER_LOGS, AddOns, on_nodes
from stacks.cluster.charts import add_charts
from stacks.cluster.cluster_reference import ClusterPlacement, ClusterReference, existing_cluster
from stacks.cluster.kubectl import narrow_kubectl_provider
from stacks.cluster.permanent_nodes import add_permanent_nodes
from stacks.cluster.training_operator import operator_manifests
from stacks.cluster.workload import Workload
from stacks.shared.acknowledgements import Reason
from stacks.shared.aws_policies import attach_aws_policies
from stacks.shared.custom_resources import settle_custom_resources
from stacks.shared.log_groups import ServiceLogGroups
from stacks.shared.session_manager import let_sessions_in
from trainflow.configuration.cluster_software import VOLCANO
from trainflow.configuration.deployment import Configuration, ConfigurationError
from trainflow.deployment.address import container_log
from trainflow.deployment.volcano_queues import queue_manifest

if TYPE_CHECKING:
    from stacks.network.stack import NetworkStack
    from stacks.storage.stack import StorageStack

__all__ = ["ClusterPlacement", "ClusterReference", "ClusterStack", "existing_cluster"]

KUBERNETES_VERSIONS = ("1.35", "1.36")
"""Kubernetes versions within one minor version of kubectl 1.36, the layer that applies the manifests (Kubernetes
version skew policy)."""

HTTPS_PORT = 443


class ClusterStack(cdk.Stack):
    """Everything in the cluster except for the training nodes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        network: NetworkStack,
        storage: StorageStack,
        **kwargs: Any,
    ) -> None:
        _check_version(configuration.cluster.kubernetes_version)
        super().__init__(scope, construct_id, **kwargs)
        self._configuration = configuration
        self._network = network
        self._log_groups = self._make_log_groups()
        self.cluster = self._make_cluster()
        self.reference = self._refer()
        self._let_functions_in()
        self._admit_administrators()
        self.node_security_groups = self._node_security_groups(storage)
        self.node_role = self._make_node_role()
        self._permanent_nodes = self._make_permanent_nodes()
        ready = self._make_ready()
        self._install_controllers(after=ready)
        workload = Workload(
            self, "Workload", configuration=configuration, cluster=self.cluster, storage=storage, after=ready
        )
        self.pod_role = workload.pod_role
        self._settle_custom_resources()

    def _make_cluster(self) -> eks.Cluster:
        settings = self._configuration.cluster
        cluster = eks.Cluster(
            self,
            "Cluster",
            cluster_name=self._configuration.cluster_name,
            version=eks.KubernetesVersion.of(settings.kubernetes_version),
            vpc=self._network.vpc,
            vpc_subnets=[ec2.SubnetSelection(subnets=self._network.private_subnets)],
            endpoint_access=_endpoint_access(settings.public_endpoint_cidrs),
            cluster_logging=list(eks.ClusterLoggingTypes),
            role=self._make_cluster_role(),
            secrets_encryption_key=self._make_key(),
            # The deploying principal does not become an administrator; the configuration names the administrators.
            bootstrap_cluster_creator_admin_permissions=False,
            # Its own copies of CNI, proxy and DNS would be in the way of the add-ons.
            bootstrap_self_managed_addons=False,
            default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
            default_capacity=0,
            kubectl_provider_options=eks.KubectlProviderOptions(
                kubectl_layer=KubectlV36Layer(self, "Kubectl"),
                # Not the cluster's own group, which EKS could not delete while a function's interface is still in it.
                security_groups=[self._network.lambda_security_group],
            ),
        )
        resource = cluster.node.default_child
        if not isinstance(resource, eks.CfnCluster):
            raise TypeError("a cluster is made of AWS::EKS::Cluster")
        resource.node.add_dependency(self._log_groups)
        resource.deletion_protection = self._configuration.production
        # Extended support costs six times as much an hour; at the end of standard support AWS upgrades instead.
        resource.upgrade_policy = eks.CfnCluster.UpgradePolicyProperty(support_type="STANDARD")
        return cluster

    def _make_log_groups(self) -> ServiceLogGroups:
        """Log groups of the control plane and of Container Insights, which their services would otherwise keep
        forever."""
        keep = self._configuration.production
        name = self._configuration.cluster_name
        groups = {f"/aws/eks/{name}/cluster": 365 if keep else 30}
        groups |= {container_log(name, kind): 90 if keep else 14 for kind in CONTAINER_LOGS}
        return ServiceLogGroups(self, "ServiceLogs", groups=groups, keep=keep, key=self._network.log_key)

    def _make_key(self) -> kms.Key:
        """The key of the cluster's secrets; it encrypts nothing else, and is deleted with the cluster."""
        return kms.Key(
            self,
            "SecretsKey",
            description="Trainflow: Kubernetes secrets",
            enable_key_rotation=True,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )

    def _refer(self) -> ClusterReference:
        return ClusterReference(
            name=self.cluster.cluster_name,
            arn=self.cluster.cluster_arn,
            placement=ClusterPlacement(
                vpc=self._network.vpc,
                subnets=ec2.SubnetSelection(subnets=self._network.private_subnets),
                security_group=self._network.lambda_security_group,
            ),
        )

    def _let_functions_in(self) -> None:
        """Permissions that exist before anything is applied to the cluster, and until it has been deleted."""
        rule = ec2.CfnSecurityGroupIngress(
            self,
            "FunctionsToApiServer",
            group_id=self.cluster.cluster_security_group_id,
            source_security_group_id=self._network.lambda_security_group.security_group_id,
            ip_protocol="tcp",
            from_port=HTTPS_PORT,
            to_port=HTTPS_PORT,
            description="Functions to the API server",
        )
        self.cluster.node.find_child("KubectlReadyBarrier").node.add_dependency(rule)

    def _admit_administrators(self) -> None:
        for number, principal in enumerate(self._configuration.cluster.administrators):
            self.cluster.grant_cluster_admin(f"Administrator{number}", principal)

    def _node_security_groups(self, storage: StorageStack) -> list[ec2.ISecurityGroup]:
        """Security groups of every node: the cluster's own, and that of the file system's clients."""
        groups = [self.cluster.cluster_security_group]
        if storage.shared is not None:
            groups.append(storage.shared.client_security_group)
        return groups

    def _make_node_role(self) -> iam.Role:
        """Role of all nodes: they register, pull images and get credentials for their pods.

        A holder of its credentials gets those of every role whose pods run on the node. So pods cannot reach the
        instance metadata (`METADATA_HOPS`) or access their node (`namespace_manifest`).
        """
        role = iam.Role(
            self,
            "NodeRole",
            description="Trainflow: nodes of the cluster",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        )
        attach_aws_policies(
            role,
            "AmazonEKSWorkerNodePolicy",
            "AmazonEC2ContainerRegistryPullOnly",
            reason=Reason.NODE_POLICIES,
        )
        if self._configuration.cluster.ssm_access:
            let_sessions_in(role)
        return role

    def _make_cluster_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "ClusterRole",
            description="Trainflow: the control plane",
            assumed_by=iam.ServicePrincipal("eks.amazonaws.com"),
        )
        attach_aws_policies(
            role,
            "AmazonEKSClusterPolicy",
            reason=Reason.CONTROL_PLANE_POLICY,
        )
        return role

    def _make_permanent_nodes(self) -> list[eks.Nodegroup]:
        groups = add_permanent_nodes(
            self.cluster,
            self._configuration.cluster,
            subnet=self._network.training_subnet,
            role=self.node_role,
            security_groups=self.node_security_groups,
        )
        add_ons = AddOns(self, "NodeAddOns", cluster=self.cluster, add_ons=BEFORE_NODES)
        for nodes in groups:
            nodes.node.add_dependency(add_ons)
        return groups

    def _make_ready(self) -> AddOns:
        """Install the add-ons that run on nodes.

        Install before workloads (they need DNS and volumes); delete after them.
        """
        pod_logs = self._configuration.cluster.pod_logs == "cloudwatch"
        add_ons = AddOns(self, "PodAddOns", cluster=self.cluster, add_ons=on_nodes(pod_logs=pod_logs))
        add_ons.node.add_dependency(*self._permanent_nodes)
        return add_ons

    def _settle_custom_resources(self) -> None:
        self._log_groups.name_role_once()
        log_group = settle_custom_resources(self, key=self._network.log_key)
        narrow_kubectl_provider(self.cluster, log_group)

    def _install_controllers(self, *, after: AddOns) -> None:
        settings = self._configuration.cluster
        installed = add_charts(self.cluster, trainer=settings.trainer, after=after)
        self._make_queues(after=installed[VOLCANO])
        if settings.training_operator:
            operator = self.cluster.add_manifest("TrainingOperator", *operator_manifests())
            operator.node.add_dependency(after)

    def _make_queues(self, *, after: IConstruct) -> None:
        """Install the queues after Volcano, whose webhook checks them; they are deleted before Volcano."""
        for settings in self._configuration.cluster.volcano_queues:
            queue = self.cluster.add_manifest(f"Queue-{settings.name}", queue_manifest(**settings.model_dump()))
            queue.node.add_dependency(after)


def _check_version(version: str) -> None:
    if version not in KUBERNETES_VERSIONS:
        raise ConfigurationError(
            f"cluster.kubernetes_version: '{version}' is not supported; choose one of {', '.join(KUBERNETES_VERSIONS)}."
        )


def _endpoint_access(cidrs: tuple[str, ...]) -> eks.EndpointAccess:
    """A private endpoint; for users outside of the VPC, also a public one for the configured networks."""
    return eks.EndpointAccess.PUBLIC_AND_PRIVATE.only_from(*cidrs) if cidrs else eks.EndpointAccess.PRIVATE
