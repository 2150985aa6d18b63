"""Schedules of EventBridge Scheduler, with a time zone, few retries and a queue for failed events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.orchestration.permissions import USE_OF_KEY, allow, role, service

RETRIES = 2
"""Retries of a schedule. With Scheduler's default, 185 within a day, a run could start a day late at the same cost."""
MAX_EVENT_AGE_SECONDS = 3600
"""Events older than this are not tried again; the dead-letter queue then notifies a person."""

SCHEDULED_AT = "<aws.scheduler.scheduled-time>"
"""Scheduler writes the time in its place."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Target of a schedule, and the role that may only invoke it."""

    arn: str
    dead_letter_queue: sqs.IQueue
    role: iam.Role


class Schedules(Construct):
    """The schedules of one deployment, in a group of their own."""

    def __init__(self, scope: Construct, construct_id: str, *, group: str, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self._key = key
        self._group = scheduler.CfnScheduleGroup(self, "Group", name=group)

    def target(self, construct_id: str, *, arn: str, action: str, dead_letter_queue: sqs.IQueue) -> Target:
        """Something that schedules may set going.

        Args:
            construct_id: Of its role.
            arn: A queue's or a function's.
            action: What IAM calls it.
            dead_letter_queue: Takes what could not be handed over.
        """
        grants = [
            allow(action, on=arn),
            allow("sqs:SendMessage", on=dead_letter_queue.queue_arn),
            allow(*USE_OF_KEY, on=self._key.key_arn),
        ]
        made = role(self, construct_id, service=service(self, "scheduler.amazonaws.com"), grants=grants)
        return Target(arn=arn, dead_letter_queue=dead_letter_queue, role=made)

    def add(
        self,
        name: str,
        *,
        expression: str,
        target: Target,
        message: Mapping[str, Any],
        time_zone: str = "UTC",
        enabled: bool = True,
    ) -> None:
        """Hand the target a message at the times that the expression means in the time zone."""
        schedule = scheduler.CfnSchedule
        made = schedule(
            self,
            name,
            group_name=self._group.name,
            name=name,
            schedule_expression=expression,
            schedule_expression_timezone=time_zone,
            flexible_time_window=schedule.FlexibleTimeWindowProperty(mode="OFF"),
            state="ENABLED" if enabled else "DISABLED",
            target=schedule.TargetProperty(
                arn=target.arn,
                role_arn=target.role.role_arn,
                input=json.dumps(message),
                retry_policy=schedule.RetryPolicyProperty(
                    maximum_retry_attempts=RETRIES, maximum_event_age_in_seconds=MAX_EVENT_AGE_SECONDS
                ),
                dead_letter_config=schedule.DeadLetterConfigProperty(arn=target.dead_letter_queue.queue_arn),
            ),
        )
        made.add_resource_dependency(self._group)
