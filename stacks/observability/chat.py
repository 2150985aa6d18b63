"""Channels of Slack and Microsoft Teams, through Amazon Q Developer in chat applications (formerly AWS Chatbot).

The service subscribes to the topic by itself. It shows CloudWatch's alarms, and messages in its own format, which
`lambdas/gateways/notifications` sends. Members of a channel cannot call AWS from it: its role allows nothing, and its
guardrail denies everything.
"""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainflow.configuration.deployment import Configuration

DENY_ALL = "policy/AWSDenyAll"
"""AWS's own policy that denies every action. Without a guardrail a channel has AdministratorAccess as its limit."""


# Decision 40: AWS sends to the chat, so that no function holds a webhook.
class Chat(Construct):
    """The channels that the configuration names, at least one."""

    def __init__(self, scope: Construct, construct_id: str, *, configuration: Configuration, topic: sns.ITopic) -> None:
        super().__init__(scope, construct_id)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("chatbot.amazonaws.com"),
            description="Trainflow: channels of chat applications; allows nothing",
        )
        stack = cdk.Stack.of(self)
        guardrail = stack.format_arn(service="iam", region="", account="aws", resource=DENY_ALL)
        common: dict[str, Any] = {
            "iam_role_arn": role.role_arn,
            "guardrail_policies": [guardrail],
            "logging_level": "ERROR",  # only the service's log says why a message was not shown
            "sns_topic_arns": [topic.topic_arn],
            "user_role_required": False,
        }
        slack, teams = configuration.alarms.slack, configuration.alarms.teams
        if slack is not None:
            chatbot.CfnSlackChannelConfiguration(
                self,
                "Slack",
                configuration_name=f"{configuration.name}-slack",
                slack_workspace_id=slack.workspace_id,
                slack_channel_id=slack.channel_id,
                **common,
            )
        if teams is not None:
            chatbot.CfnMicrosoftTeamsChannelConfiguration(
                self,
                "Teams",
                configuration_name=f"{configuration.name}-teams",
                team_id=teams.team_id,
                teams_tenant_id=teams.tenant_id,
                teams_channel_id=teams.channel_id,
                **common,
            )
