"""Calls of AWS's APIs for what CloudFormation has no property for: one small function of CDK's makes a stack's all."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import custom_resources as resources
from constructs import Construct

from stacks.parts.acknowledgements import Reason, acknowledge

MEMORY_MIB = 256


class AwsCalls(Construct):
    """The role and the log of that function, and what it is asked to do."""

    def __init__(self, scope: Construct, construct_id: str, *, description: str) -> None:
        """Make the function's role, which may do nothing yet.

        Args:
            scope: The stack that the calls are about.
            construct_id: Of this construct.
            description: Of the role.
        """
        super().__init__(scope, construct_id)
        self._log_group = logs.LogGroup(
            self, "Log", retention=logs.RetentionDays.ONE_MONTH, removal_policy=cdk.RemovalPolicy.DESTROY
        )
        self._role = iam.Role(
            self, "Role", description=description, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")
        )
        for rule in ("DLQ", "Tracing"):
            acknowledge(cdk.Stack.of(self), f"Serverless::Serverless-Lambda{rule}", reason=Reason.DEPLOYMENTS_WAIT)

    def allow(self, *statements: iam.PolicyStatement) -> iam.Policy:
        """Let the function make its calls; every call waits until it may."""
        write_log = iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[self._log_group.log_group_arn]
        )
        return iam.Policy(self, "Policy", roles=[self._role], statements=[write_log, *statements])

    def call(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: str,
        action: str,
        parameters: dict[str, Any],
        output_paths: list[str] | None = None,
    ) -> resources.AwsCustomResource:
        """One call of an AWS API, when what it is about is made and whenever the parameters change."""
        made = resources.AwsCustomResource(
            scope,
            construct_id,
            on_update=resources.AwsSdkCall(
                service=service,
                action=action,
                parameters=parameters,
                physical_resource_id=resources.PhysicalResourceId.of(f"{scope.node.path}/{construct_id}"),
                output_paths=output_paths,
            ),
            role=self._role,
            log_group=self._log_group,
            memory_size=MEMORY_MIB,
            install_latest_aws_sdk=False,
        )
        made.node.add_dependency(self.node.find_child("Policy"))
        return made

    def name_role_once(self) -> None:
        """The function refers to its role, and depends on it too; cfn-lint warns of that (W3005)."""
        for function in cdk.Stack.of(self).node.find_all():
            if isinstance(function, lambda_.CfnFunction):
                function.add_deletion_override("DependsOn")
