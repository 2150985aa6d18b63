"""Amazon SNS: telling people how a run ended."""

from __future__ import annotations

from lambdas.gateways.aws import client, translated

MAX_SUBJECT_LENGTH = 100
"""Quota of SNS; longer subjects are refused."""


def publish(topic_arn: str, *, subject: str, message: str) -> None:
    """Send one message to the topic's subscribers."""
    with translated("sns:Publish"):
        client("sns").publish(TopicArn=topic_arn, Subject=subject[:MAX_SUBJECT_LENGTH], Message=message)
