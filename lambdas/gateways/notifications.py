"""Amazon SNS: telling people."""

from __future__ import annotations

from lambdas.gateways.aws import client, translated

MAX_SUBJECT_LENGTH = 99
"""SNS refuses subjects of 100 characters and more, and those with other than printable ASCII (API reference,
Publish)."""

MAX_MESSAGE_LENGTH = 10_000
"""Nobody reads more; SNS takes 256 KiB."""


def publish(topic_arn: str, *, subject: str, message: str) -> None:
    """Send one message to the topic's subscribers."""
    printable = "".join(letter if " " <= letter <= "~" else "?" for letter in subject)[:MAX_SUBJECT_LENGTH]
    text = message[:MAX_MESSAGE_LENGTH].encode(errors="backslashreplace").decode()
    with translated("sns:Publish"):
        client("sns").publish(TopicArn=topic_arn, Subject=printable, Message=text)
