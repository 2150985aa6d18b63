"""Least privilege: how a statement is written here, and the few that AWS gives no way to narrow.

Roles carry their statements themselves, so that a function exists only once it may do its work. What no resource can
be named for stands in policies of its own, once: roles that trace or publish metrics attach the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from stacks.shared.aws_policies import IN_NETWORK
from trainflow.workflow.metric_names import NAMESPACE

USE_OF_KEY = ("kms:Decrypt", "kms:GenerateDataKey")
"""Actions on the key for sending to an encrypted topic or queue, and for reading from one."""


@dataclass(frozen=True)
class Grant:
    """One line of a table of grants."""

    statement: iam.PolicyStatement
    pattern_because: Reason | None
    """The reason for a pattern among its resources, for the auditor; None if every resource is named in full."""


def allow(
    *actions: str,
    on: str | Sequence[str],
    when: Mapping[str, Mapping[str, Any]] | None = None,
    pattern_because: Reason | None = None,
) -> Grant:
    """Permission for some actions.

    Args:
        actions: As IAM names them.
        on: The resources' ARNs.
        when: Conditions, by operator.
        pattern_because: Needed when an ARN has a `*` in it.
    """
    resources = [on] if isinstance(on, str) else list(on)
    statement = iam.PolicyStatement(actions=list(actions), resources=resources, conditions=when)
    return Grant(statement, pattern_because)


def policy(scope: Construct, construct_id: str, *grants: Grant) -> iam.ManagedPolicy:
    """Grants that several roles have in common."""
    made = iam.ManagedPolicy(scope, construct_id, statements=[grant.statement for grant in grants])
    acknowledge_patterns(made, grants)
    return made


def role(
    scope: Construct,
    construct_id: str,
    *,
    service: iam.ServicePrincipal,
    grants: Sequence[Grant],
    policies: Sequence[iam.ManagedPolicy] = (),
) -> iam.Role:
    """A role for one AWS service, with its statements inside: it never exists without them."""
    made = iam.Role(
        scope,
        construct_id,
        assumed_by=service,
        inline_policies={"Grants": iam.PolicyDocument(statements=[grant.statement for grant in grants])},
        managed_policies=list(policies),
    )
    acknowledge_patterns(made, grants)
    acknowledge(made, *in_both_baselines("IAMNoInlinePolicy"), reason=Reason.POLICY_OF_ONE_ROLE)
    return made


def as_it_is(role: iam.Role) -> iam.IRole:
    """The role for constructs that would add to it: they add wider grants than ours."""
    return iam.Role.from_role_arn(role, "AsItIs", role.role_arn, mutable=False)


def objects(owner: cdk.Stack, bucket: s3.IBucket, pattern: str) -> str:
    """The ARN of some of the objects of another stack's bucket."""
    # Exported here and now, so that the ARN is known as the template will have it.
    return f"{owner.export_value(bucket.bucket_arn)}/{pattern}"


def acknowledge_patterns(construct: Construct, grants: Iterable[Grant]) -> None:
    """Say to the auditor why patterns in the grants' resources stand."""
    for grant in grants:
        if grant.pattern_because is None:
            continue
        for resource in grant.statement.resources:
            arn = _as_in_template(cdk.Stack.of(construct).resolve(resource))
            if "*" in arn:
                acknowledge(construct, f"AwsSolutions-IAM5[Resource::{arn}]", reason=grant.pattern_because)


def _as_in_template(value: Any) -> str:
    """An ARN as cdk-nag writes it in the name of a finding."""
    match value:
        case {"Fn::Join": [delimiter, parts]}:
            return str(delimiter).join(map(_as_in_template, parts))
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{resource}.{attribute}>"
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::ImportValue": name}:
            return _as_in_template(name)
        case _:
            return str(value)


def service(scope: Construct, name: str) -> iam.ServicePrincipal:
    """An AWS service, acting for this account and not for a stranger's resources (the confused deputy)."""
    account = cdk.Stack.of(scope).account
    return iam.ServicePrincipal(name, conditions={"StringEquals": {"aws:SourceAccount": account}})


class SharedPolicies(Construct):
    """Policies for actions that cannot name a resource, each for the functions that need it."""

    def __init__(self, scope: Construct, construct_id: str, *, in_network: bool, slurm: Sequence[Grant] = ()) -> None:
        """
        Args:
            scope: The stack of the functions and state machines.
            construct_id: Of this construct.
            in_network: Whether functions stand in a VPC.
            slurm: Permissions to use Slurm; empty without Slurm.
        """
        super().__init__(scope, construct_id)
        acknowledge(self, "AwsSolutions-IAM5[Resource::*]", reason=Reason.NO_RESOURCE_LEVEL)
        self.trace = policy(
            self,
            "Trace",
            allow(
                "xray:PutTraceSegments",
                "xray:PutTelemetryRecords",
                "xray:GetSamplingRules",
                "xray:GetSamplingTargets",
                on="*",
            ),
        )
        self.publish_metrics = policy(
            self,
            "PublishMetrics",
            allow("cloudwatch:PutMetricData", on="*", when={"StringEquals": {"cloudwatch:namespace": NAMESPACE}}),
        )
        self.read_metrics = policy(
            self, "ReadMetrics", allow("cloudwatch:ListMetrics", "cloudwatch:GetMetricData", on="*")
        )
        self.examine = policy(
            self,
            "Examine",
            allow(
                "ec2:DescribeSubnets",
                "ec2:DescribeInstanceTypeOfferings",
                "servicequotas:GetServiceQuota",
                "cloudwatch:GetMetricStatistics",
                on="*",
            ),
        )
        self.read_launches = policy(self, "ReadLaunches", allow("autoscaling:DescribeScalingActivities", on="*"))
        self.read_instances = policy(self, "ReadInstances", allow("autoscaling:DescribeAutoScalingGroups", on="*"))
        self.read_imports = policy(self, "ReadImports", allow("fsx:DescribeDataRepositoryTasks", on="*"))
        self.stand_in_network = self._stand_in_network() if in_network else None
        self.use_slurm = policy(self, "UseSlurm", *slurm) if slurm else None
        self.deliver_logs = policy(
            self,
            "DeliverLogs",
            allow(
                "logs:CreateLogDelivery",
                "logs:GetLogDelivery",
                "logs:UpdateLogDelivery",
                "logs:DeleteLogDelivery",
                "logs:ListLogDeliveries",
                "logs:PutResourcePolicy",
                "logs:DescribeResourcePolicies",
                "logs:DescribeLogGroups",
                on="*",
            ),
        )

    def _stand_in_network(self) -> iam.ManagedPolicy:
        return policy(self, "StandInNetwork", allow(*IN_NETWORK, on="*"))
