"""Log groups whose names a service fixes: they may exist already, after a failed deployment or an earlier one.

CloudFormation refuses to create a log group that exists ("already exists"), and a group that is kept would stop every
later deployment. EKS and the CloudWatch agent also create theirs by themselves as soon as they have something to write.
So these groups do not belong to the stack: two calls make sure that they exist and expire.
"""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.shared.acknowledgements import Reason, acknowledge
from stacks.shared.aws_calls import AwsCalls, Call

SERVICE = "cloudwatch-logs"
"""The SDK's name of CloudWatch Logs."""


# Decision 25: CloudFormation cannot create a group that a service has made already.
class ServiceLogGroups(AwsCalls):
    """Log groups that exist before the service writes to them, and whose events expire."""

    def __init__(
        self, scope: Construct, construct_id: str, *, groups: Mapping[str, int], keep: bool, key: kms.IKey
    ) -> None:
        """
        Args:
            scope: The stack whose service writes the logs.
            construct_id: The id of this construct.
            groups: Days that events are kept, one of those that PutRetentionPolicy takes, by the group's name.
            keep: Whether the groups stay when the stack is deleted.
            key: Key of the log of the calls that are made here.
        """
        super().__init__(scope, construct_id, description="Trainflow: log groups whose names a service fixes", key=key)
        self._keep = keep
        self._allow_calls(list(groups))
        for number, (name, days) in enumerate(groups.items()):
            self._ensure(f"Group{number}", name, days)

    def _ensure(self, construct_id: str, name: str, days: int) -> None:
        scope = Construct(self, construct_id)
        group = {"logGroupName": name}
        delete = Call(SERVICE, "DeleteLogGroup", group, passes_over="ResourceNotFoundException")
        created = self.call(
            scope,
            "Exists",
            Call(SERVICE, "CreateLogGroup", group, passes_over="ResourceAlreadyExistsException"),
            on_delete=None if self._keep else delete,
        )
        expires = Call(SERVICE, "PutRetentionPolicy", {**group, "retentionInDays": days})
        self.call(scope, "Expires", expires).node.add_dependency(created)

    def _allow_calls(self, names: list[str]) -> None:
        """ARN with `:*` after the name, the form of log groups in policies."""
        stack = cdk.Stack.of(self)
        account = "<AWS::AccountId>" if cdk.Token.is_unresolved(stack.account) else stack.account
        actions = ["logs:CreateLogGroup", "logs:PutRetentionPolicy", *([] if self._keep else ["logs:DeleteLogGroup"])]
        arns = {name: f"logs:{stack.region}:{{}}:log-group:{name}:*" for name in names}
        policy = self.allow(
            iam.PolicyStatement(
                actions=actions,
                resources=[f"arn:{stack.partition}:{arn.format(stack.account)}" for arn in arns.values()],
            )
        )
        for arn in arns.values():
            rule = f"AwsSolutions-IAM5[Resource::arn:aws:{arn.format(account)}]"
            acknowledge(policy, rule, reason=Reason.LOG_GROUPS_END_WITH_A_STAR)
