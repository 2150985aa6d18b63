"""Amazon SNS: a topic with e-mail subscribers."""

from __future__ import annotations

from dataclasses import dataclass

from lambdas.gateways.aws import client, translated

MAX_SUBJECT_LENGTH = 99
"""SNS refuses subjects of 100 characters and more, and those with other than printable ASCII (API reference,
Publish)."""

MAX_MESSAGE_LENGTH = 10_000
"""Longest message: more than people read in an e-mail. SNS accepts 256 KiB."""


@dataclass(frozen=True)
class Topic:
    """Channel to the subscribers of a topic."""

    arn: str

    def send(self, *, subject: str, message: str) -> None:
        """Publish one message."""
        printable = "".join(letter if " " <= letter <= "~" else "?" for letter in subject)[:MAX_SUBJECT_LENGTH]
        text = message[:MAX_MESSAGE_LENGTH].encode(errors="backslashreplace").decode()
        with translated("sns:Publish"):
            client("sns").publish(TopicArn=self.arn, Subject=printable, Message=text)
