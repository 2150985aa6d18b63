"""One Lambda function of the list in `trainflow/deployment/functions.py`, with all that belongs to it.

Functions that talk to the cluster start from a snapshot (SnapStart), because a cold start would compile the Kubernetes
client for 3.5 s of CPU, which is 12 s at 512 MiB. Keeping a snapshot costs 0.0000015046 USD for each GB-second of
memory and a restore 0.0001397998 USD for each GB (AWS Lambda pricing, us-west-2, November 2026): thirteen functions of
512 MiB are 0.035 USD an hour, whether anything runs or not. The others start fast enough without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import aws_cdk as cdk
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.orchestration.bundling import PYTHON
from stacks.orchestration.permissions import USE_OF_KEY, Grant, SharedPolicies, allow, as_it_is, role
from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from trainflow.deployment.functions import Function, deployed_name

if TYPE_CHECKING:
    from stacks.cluster.cluster_reference import ClusterReference

RUNTIME = lambda_.Runtime(f"python{PYTHON}", lambda_.RuntimeFamily.PYTHON)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Settings and resources that all functions of a deployment share."""

    deployment: str
    """Begins every function's name."""
    code: lambda_.Code
    variables: Mapping[str, str]
    """Every environment variable that a function may name."""
    cluster: ClusterReference
    key: kms.IKey
    policies: SharedPolicies
    log_days: logs.RetentionDays
    on_destroy: cdk.RemovalPolicy


class TrainflowFunction(Construct):
    """A function, its role, its log group, its version and its entry in the cluster."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        surroundings: Surroundings,
        grants: Sequence[Grant | iam.ManagedPolicy] = (),
        dead_letter_queue: sqs.IQueue | None = None,
    ) -> None:
        """
        Args:
            scope: The stack.
            construct_id: The function's name.
            function: Which one.
            surroundings: What it shares with the others.
            grants: All that its code may do; logs, traces and its place in the network are added.
            dead_letter_queue: For functions that are invoked asynchronously.
        """
        super().__init__(scope, construct_id)
        self._function, self._surroundings = function, surroundings
        self.timeout = cdk.Duration.seconds(function.timeout_seconds)
        self.log_group = self._make_log_group()
        self.role = self._make_role(grants, dead_letter_queue)
        self.function = self._make_function(dead_letter_queue)
        self.version = self.function.current_version
        """The version that is called: never the function itself, whose code changes while a run goes on."""
        if function.access is not None:
            eks.CfnAccessEntry(
                self,
                "Access",
                cluster_name=surroundings.cluster.name,
                principal_arn=self.role.role_arn,
                kubernetes_groups=[function.access],
            )

    @property
    def _talks_to_cluster(self) -> bool:
        return self._function.access is not None

    def _make_log_group(self) -> logs.LogGroup:
        return logs.LogGroup(
            self,
            "Logs",
            encryption_key=self._surroundings.key,
            retention=self._surroundings.log_days,
            removal_policy=self._surroundings.on_destroy,
        )

    def _make_role(self, grants: Sequence[Grant | iam.ManagedPolicy], dead_letter_queue: sqs.IQueue | None) -> iam.Role:
        shared = self._surroundings
        own = [grant for grant in grants if isinstance(grant, Grant)]
        policies = [grant for grant in grants if isinstance(grant, iam.ManagedPolicy)]
        own.append(allow("logs:CreateLogStream", "logs:PutLogEvents", on=self.log_group.log_group_arn))
        own.append(allow("kms:Decrypt", on=shared.key.key_arn))  # the environment's variables
        policies.append(shared.policies.trace)
        if self._talks_to_cluster:
            own.append(allow("eks:DescribeCluster", on=shared.cluster.arn))
            if shared.policies.stand_in_network is not None:
                policies.append(shared.policies.stand_in_network)
            if shared.policies.use_slurm is not None:
                policies.append(shared.policies.use_slurm)
        if dead_letter_queue is not None:
            own.append(allow("sqs:SendMessage", on=dead_letter_queue.queue_arn))
            own.append(allow(*USE_OF_KEY, on=shared.key.key_arn))
        return role(self, "Role", service=iam.ServicePrincipal("lambda.amazonaws.com"), grants=own, policies=policies)

    def _make_function(self, dead_letter_queue: sqs.IQueue | None) -> lambda_.Function:
        entry, shared = self._function, self._surroundings
        placement = shared.cluster.placement if self._talks_to_cluster else None
        function = lambda_.Function(
            self,
            "Function",
            function_name=deployed_name(shared.deployment, entry.name),
            description=f"Trainflow: {entry.name}",
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            code=shared.code,
            handler=entry.handler,
            memory_size=entry.memory_mib,
            timeout=self.timeout,
            environment=self._environment(),
            environment_encryption=shared.key,
            role=as_it_is(self.role),
            vpc=placement.vpc if placement else None,
            vpc_subnets=placement.subnets if placement else None,
            security_groups=[placement.security_group] if placement else None,
            tracing=lambda_.Tracing.ACTIVE,
            log_group=self.log_group,
            dead_letter_queue=dead_letter_queue,
            # Running executions go on calling the version that they began with; `trainflow delete-old-versions`
            # deletes the rest. A failed update takes its own version back: Lambda publishes the same code once only.
            current_version_options=lambda_.VersionOptions(removal_policy=cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE),
        )
        acknowledge(function, *in_both_baselines("LambdaConcurrency"), reason=Reason.FEW_AT_A_TIME)
        if placement is None:
            acknowledge(function, *in_both_baselines("LambdaInsideVPC"), reason=Reason.NOTHING_IN_THE_VPC)
        if self._talks_to_cluster:
            # Not by CDK's own setting, which warns of functions without a published version; ours have one.
            made = cast(lambda_.CfnFunction, function.node.default_child)
            # Decision 12: SnapStart, since a cold start compiles the Kubernetes client for 3.5 s.
            made.snap_start = lambda_.CfnFunction.SnapStartProperty(apply_on="PublishedVersions")
        return function

    def _environment(self) -> dict[str, str]:
        named = {name: self._surroundings.variables[name] for name in self._function.environment}
        return {**named, "POWERTOOLS_SERVICE_NAME": "trainflow", "POWERTOOLS_LOG_LEVEL": "INFO"}
