"""What EKS itself installs into the cluster, and with which permissions.

No versions: EKS then takes the one that is the default for the cluster's Kubernetes version, which is the one that AWS
tests with it. Pinned ones would have to be found out in an account, and could be withdrawn under us.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.cluster.pod_identity import pod_identity
from stacks.shared.acknowledgements import Reason
from stacks.shared.aws_policies import attach_aws_policies
from trainflow.models.daemon_sets import daemon_set

CONTAINER_LOGS = ("application", "dataplane", "host", "performance")
"""What Container Insights writes, each to a log group of its own (its user guide)."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The one service account of an add-on that calls AWS."""

    namespace: str
    service_account: str
    managed_policy: str
    """AWS's own for this add-on: what it needs changes with its version, which EKS chooses."""


@dataclass(frozen=True, kw_only=True)
class AddOn:
    """One EKS add-on."""

    name: str
    identity: Identity | None = None
    configuration: Mapping[str, Any] | None = None
    """Values of its chart that differ. EKS refuses those that the add-on's schema does not have."""


BEFORE_NODES = (
    # First: the others get their credentials from it.
    AddOn(name="eks-pod-identity-agent"),
    AddOn(
        name="vpc-cni",
        identity=Identity(namespace="kube-system", service_account="aws-node", managed_policy="AmazonEKS_CNI_Policy"),
    ),
    AddOn(name="kube-proxy"),
)
"""Daemon sets, which are active without a node, and without which no node becomes ready."""


def on_nodes(*, pod_logs: bool) -> tuple[AddOn, ...]:
    """Those that become active when their pods run.

    Args:
        pod_logs: Whether what pods write goes to CloudWatch Logs. Written out either way: an add-on that is updated
            without values keeps those that it has.
    """
    return (
        AddOn(name="coredns"),
        # Tells auto repair of faulty Neuron devices; without it a node counts as healthy while its kubelet answers.
        AddOn(
            name="eks-node-monitoring-agent",
            configuration={"nodeAgent": {"resources": {"requests": daemon_set("eks-node-monitoring-agent").requests}}},
        ),
        # Without permissions: its controller makes and deletes file systems, and ours is made by CloudFormation.
        AddOn(name="aws-fsx-csi-driver"),
        AddOn(
            name="amazon-cloudwatch-observability",
            identity=Identity(
                namespace="amazon-cloudwatch",
                service_account="cloudwatch-agent",
                managed_policy="CloudWatchAgentServerPolicy",
            ),
            # Off, its chart has no Fluent Bit; the agent, which sends metrics and their events, stays (CloudWatch user
            # guide, "Opt out of collecting container logs"; templates/linux/fluent-bit-daemonset.yaml of the chart).
            configuration={"containerLogs": {"enabled": pod_logs}},
        ),
    )


class AddOns(Construct):
    """Some of the cluster's add-ons, deleted with it."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster: eks.Cluster, add_ons: Iterable[AddOn]) -> None:
        super().__init__(scope, construct_id)
        self._cluster = cluster
        made: list[eks.CfnAddon] = []
        for add_on in add_ons:
            resource = self._add(add_on)
            if add_on.identity:
                # The agent that hands out credentials, when it is among them, is the first.
                resource.node.add_dependency(*made[:1])
            made.append(resource)

    def _add(self, add_on: AddOn) -> eks.CfnAddon:
        """The L1 construct: only it has the identity's association."""
        return eks.CfnAddon(
            self,
            add_on.name,
            addon_name=add_on.name,
            cluster_name=self._cluster.cluster_name,
            preserve_on_delete=False,
            resolve_conflicts="OVERWRITE",
            configuration_values=json.dumps(add_on.configuration) if add_on.configuration else None,
            pod_identity_associations=[self._association(add_on.name, add_on.identity)] if add_on.identity else None,
        )

    def _association(self, name: str, identity: Identity) -> eks.CfnAddon.PodIdentityAssociationProperty:
        role = iam.Role(
            self,
            f"{name}-role",
            description=f"Trainflow: the EKS add-on {name}",
            assumed_by=pod_identity(
                cluster_name=self._cluster.cluster_name,
                namespace=identity.namespace,
                service_account=identity.service_account,
            ),
        )
        attach_aws_policies(
            role,
            identity.managed_policy,
            reason=Reason.ADD_ON_POLICY,
        )
        return eks.CfnAddon.PodIdentityAssociationProperty(
            role_arn=role.role_arn, service_account=identity.service_account
        )


def container_log(cluster_name: str, kind: str) -> str:
    """The name of a log group of Container Insights."""
    return f"/aws/containerinsights/{cluster_name}/{kind}"
