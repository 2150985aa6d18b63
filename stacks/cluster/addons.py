"""The add-ons that EKS installs into the cluster, with their permissions."""

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
from trainflow.configuration.cluster_software import EVERY_TAINT

CONTAINER_LOGS = ("application", "dataplane", "host", "performance")
"""Log groups of Container Insights, one for each kind of log (its user guide)."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The one service account of an add-on that calls AWS."""

    namespace: str
    service_account: str
    managed_policy: str
    """AWS's managed policy for this add-on: the permissions it needs change with its version, which EKS chooses."""


@dataclass(frozen=True, kw_only=True)
class AddOn:
    """One EKS add-on."""

    name: str
    identity: Identity | None = None
    configuration: Mapping[str, Any] | None = None
    """Values that differ from the chart's defaults. EKS refuses values that the add-on's schema does not have."""


BEFORE_NODES = (
    # First: the others get their credentials from it.
    AddOn(name="eks-pod-identity-agent"),
    AddOn(
        name="vpc-cni",
        identity=Identity(namespace="kube-system", service_account="aws-node", managed_policy="AmazonEKS_CNI_Policy"),
        # Text, as the add-on's schema has it. Off, as it is by default, network policies are stored and change nothing.
        configuration={"enableNetworkPolicy": "true"},
    ),
    AddOn(name="kube-proxy"),
)
"""Add-ons of daemon sets: they become active without a node, and a node becomes ready only with them."""


def on_nodes(*, pod_logs: bool) -> tuple[AddOn, ...]:
    """Add-ons that become active when their pods run.

    Args:
        pod_logs: Whether the pods' output is sent to CloudWatch Logs. The value is always given: an add-on that is
            updated without values keeps its old ones.
    """
    return (
        AddOn(name="coredns"),
        # Reports faulty Neuron devices to auto repair; without it, a node is healthy as long as its kubelet answers.
        AddOn(
            name="eks-node-monitoring-agent",
            # Of nodes with GPUs the agent asks DCGM, which tolerates no taint by default. Without it the agent reports
            # each of them as broken (DCGMError), and auto repair replaces it, with its run (aws/containers-roadmap,
            # issues 2555 and 2567; the agent's monitors/nvidia/dcgm/dcgm_reconcile.go and charts/
            # configuration.schema.json, which has this value since chart 1.3.0).
            configuration={"dcgmAgent": {"tolerations": EVERY_TAINT}},
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
            configuration={
                # Off, its chart has no Fluent Bit; the agent, which sends metrics and their events, stays (CloudWatch
                # user guide, "Opt out of collecting container logs"; templates/linux/fluent-bit-daemonset.yaml of the
                # chart).
                # Decision 29: all logs or none, since Fluent Bit cannot be throttled by bytes.
                "containerLogs": {"enabled": pod_logs},
                # On by default since version 5: the operator adds four init containers to every new Deployment behind a
                # Service, Volcano and the training operator among them (CloudWatch user guide, "Enable Application
                # Signals"; aws/amazon-cloudwatch-agent-operator, pkg/instrumentation/auto/monitor.go).
                "manager": {"applicationSignals": {"autoMonitor": {"monitorAllServices": False}}},
            },
        ),
    )


class AddOns(Construct):
    """Some of the cluster's add-ons, which are deleted with the cluster."""

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
        """Make an add-on with the L1 construct, since only that one has the identity's association."""
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
