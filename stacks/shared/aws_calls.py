"""Calls of AWS APIs for settings without a CloudFormation property; one function of CDK's makes all calls of a
stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import custom_resources as resources
from constructs import Construct, IConstruct

from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines

MEMORY_MIB = 256


@dataclass(frozen=True)
class Call:
    """One call of an AWS API."""

    service: str
    """Name of the service's client in the SDK for JavaScript."""
    action: str
    parameters: Mapping[str, Any]
    passes_over: str | None = None
    """Pattern of the errors that count as success."""
    output_paths: Sequence[str] = ()
    """Paths in the answer that are read afterwards."""

    def as_sdk_call(self, identity: str) -> resources.AwsSdkCall:
        """The call in the form that CDK's function takes."""
        return resources.AwsSdkCall(
            service=self.service,
            action=self.action,
            parameters=dict(self.parameters),
            physical_resource_id=resources.PhysicalResourceId.of(identity),
            ignore_error_codes_matching=self.passes_over,
            output_paths=list(self.output_paths) or None,
        )


class AwsCalls(Construct):
    """The role and the log group of that function, and the calls that it makes."""

    def __init__(self, scope: Construct, construct_id: str, *, description: str, key: kms.IKey) -> None:
        """Make the function's role, which may do nothing yet.

        Args:
            scope: The stack of the calls.
            construct_id: The id of this construct.
            description: The description of the role.
            key: Key of the log group.
        """
        super().__init__(scope, construct_id)
        self._log_group = logs.LogGroup(
            self,
            "Log",
            encryption_key=key,
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self._role = iam.Role(
            self, "Role", description=description, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")
        )
        accept_function_of_deployments(cdk.Stack.of(self))
        acknowledge(cdk.Stack.of(self), *in_both_baselines("LambdaInsideVPC"), reason=Reason.NOTHING_IN_THE_VPC)

    def allow(self, *statements: iam.PolicyStatement) -> iam.Policy:
        """Allow the function to make its calls; every call waits for this policy."""
        write_log = iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[self._log_group.log_group_arn]
        )
        policy = iam.Policy(self, "Policy", roles=[self._role], statements=[write_log, *statements])
        acknowledge(policy, *in_both_baselines("IAMNoInlinePolicy"), reason=Reason.POLICY_OF_ONE_ROLE)
        return policy

    def call(
        self, scope: Construct, construct_id: str, call: Call, *, on_delete: Call | None = None
    ) -> resources.AwsCustomResource:
        """Make a call when its subject is created and whenever the parameters change, and another one when it is
        deleted."""
        identity = f"{scope.node.path}/{construct_id}"
        made = resources.AwsCustomResource(
            scope,
            construct_id,
            on_update=call.as_sdk_call(identity),
            on_delete=on_delete.as_sdk_call(identity) if on_delete else None,
            role=self._role,
            log_group=self._log_group,
            memory_size=MEMORY_MIB,
            install_latest_aws_sdk=False,
        )
        made.node.add_dependency(self.node.find_child("Policy"))
        return made

    def name_role_once(self) -> None:
        """Remove the dependency on the role: the function refers to it already; cfn-lint warns of both together
        (W3005)."""
        for function in cdk.Stack.of(self).node.find_all():
            if isinstance(function, lambda_.CfnFunction):
                function.add_deletion_override("DependsOn")


def accept_function_of_deployments(scope: IConstruct) -> None:
    """Acknowledge that CDK's function has neither queue, traces nor quota: it runs only in deployments."""
    rules = ("Serverless-LambdaDLQ", "Serverless-LambdaTracing", *in_both_baselines("LambdaDLQ"))
    acknowledge(scope, *rules, reason=Reason.DEPLOYMENTS_WAIT)
    acknowledge(scope, *in_both_baselines("LambdaConcurrency"), reason=Reason.FEW_AT_A_TIME)
