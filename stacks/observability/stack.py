"""Monitoring of a deployment: one dashboard, and the alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.observability.alarm_definitions import Watched
from stacks.observability.alarms import Alarms
from stacks.observability.chat import Chat
from stacks.observability.dashboard import Dashboard, Shown
from stacks.observability.runbooks import Runbooks
from trainflow.configuration.deployment import Configuration

if TYPE_CHECKING:
    from stacks.orchestration.stack import OrchestrationStack
    from stacks.storage.stack import StorageStack
    from stacks.triggers.stack import TriggersStack


class ObservabilityStack(cdk.Stack):
    """The monitoring stack. It is deployed last and no stack depends on it, so it can be changed at any time."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        orchestration: OrchestrationStack,
        triggers: TriggersStack,
        storage: StorageStack,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self.pager = sns.Topic(
            self, "Pager", display_name="Trainflow pager", master_key=orchestration.key, enforce_ssl=True
        )
        self.alarms = Alarms(
            self,
            "Alarms",
            configuration=configuration,
            pager=self.pager,
            watched=Watched(
                training=orchestration.training,
                watch_job=orchestration.watch_job,
                notify=orchestration.functions["Notify"].function,
                dead_letter_queues=triggers.dead_letter_queues,
                rules=triggers.rules,
                shared=storage.shared,
            ),
            topic=orchestration.topic,
        )
        if configuration.alarms.slack is not None or configuration.alarms.teams is not None:
            Chat(self, "Chat", configuration=configuration, topic=orchestration.topic)
        self.runbooks = None
        if configuration.alarms.runbooks_url is None:
            self.runbooks = Runbooks(self, "Runbooks", configuration=configuration)
        functions = {**orchestration.functions, **triggers.functions}
        self.dashboard = Dashboard(
            self,
            "Dashboard",
            configuration=configuration,
            shown=Shown(
                training=orchestration.training,
                functions={name: function.function for name, function in functions.items()},
                dead_letter_queues=triggers.dead_letter_queues,
                shared=storage.shared,
                alarms=self.alarms,
            ),
        )
        self._let_alarms_publish(orchestration, prefix=configuration.name)

    def _let_alarms_publish(self, orchestration: OrchestrationStack, *, prefix: str) -> None:
        """Statements of the key's policy; without both, an alarm on an encrypted topic sends no message."""
        cloudwatch = iam.ServicePrincipal("cloudwatch.amazonaws.com")
        # A pattern: the alarms' own ARNs would make the two stacks depend on each other.
        ours = {
            "StringEquals": {"aws:SourceAccount": orchestration.account},
            "ArnLike": {
                "aws:SourceArn": orchestration.format_arn(
                    service="cloudwatch",
                    resource="alarm",
                    resource_name=f"{prefix}-*",
                    arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
                )
            },
        }
        for topic in (orchestration.topic, self.pager):
            topic.add_to_resource_policy(
                iam.PolicyStatement(
                    sid="AlarmsPublish",
                    principals=[cloudwatch],
                    actions=["sns:Publish"],
                    resources=[topic.topic_arn],
                    conditions=ours,
                )
            )
        cdk.CfnOutput(
            self, "PagerTopic", value=self.pager.topic_arn, description="A pager subscribes here: urgent alarms only"
        )
        orchestration.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsEncrypt",
                principals=[cloudwatch],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions=ours,
            )
        )
