"""Amazon SNS: the topic whose subscribers get e-mail."""

from __future__ import annotations

from dataclasses import dataclass

from lambdas.gateways.aws import client, translated

MAX_SUBJECT_LENGTH = 99
"""SNS refuses subjects of 100 characters and more, and those with other than printable ASCII (API reference,
Publish)."""

MAX_MESSAGE_LENGTH = 10_000
"""More than an e-mail's reader takes in; SNS carries 256 KiB."""


@dataclass(frozen=True)
class Topic:
    """The channel of a topic's subscribers."""

    arn: str

    def send(self, *, subject: str, message: str) -> None:
        """Publish one message."""
        printable = "".join(letter if " " <= letter <= "~" else "?" for letter in subject)[:MAX_SUBJECT_LENGTH]
        text = message[:MAX_MESSAGE_LENGTH].encode(errors="backslashreplace").decode()
        with translated("sns:Publish"):
            client("sns").publish(TopicArn=self.arn, Subject=printable, Message=text)
