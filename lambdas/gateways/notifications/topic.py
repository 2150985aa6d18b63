"""Amazon SNS: a topic with subscribers by e-mail, and channels of chat applications.

One message has two forms. Mail and every other subscriber gets the text. Amazon Q Developer in chat applications
subscribes by HTTPS and shows nothing but its own format ("Custom notifications" in its administrator guide), so
subscribers by HTTPS get that one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from lambdas.gateways.aws import client, translated

MAX_SUBJECT_LENGTH = 99
"""SNS refuses subjects of 100 characters and more, and those with other than printable ASCII (API reference,
Publish)."""

MAX_MESSAGE_LENGTH = 10_000
"""Longest message: more than people read in an e-mail. SNS accepts 256 KiB, both forms together."""

MAX_CHAT_LENGTH = 3000
"""Longest text in a chat: Slack's for one block (Block Kit reference, section block)."""


@dataclass(frozen=True)
class Topic:
    """Channel to the subscribers of a topic."""

    arn: str

    def send(self, *, subject: str, message: str) -> None:
        """Publish one message."""
        printable = "".join(letter if " " <= letter <= "~" else "?" for letter in subject)[:MAX_SUBJECT_LENGTH]
        text = message[:MAX_MESSAGE_LENGTH].encode(errors="backslashreplace").decode()
        forms = {"default": text, "https": chat_notification(printable, text)}
        with translated("sns:Publish"):
            client("sns").publish(
                TopicArn=self.arn, Subject=printable, Message=json.dumps(forms), MessageStructure="json"
            )


def chat_notification(title: str, text: str) -> str:
    """A message in the format of Amazon Q Developer's custom notifications; it drops other messages."""
    shown = text if len(text) <= MAX_CHAT_LENGTH else f"{text[: MAX_CHAT_LENGTH - 1]}…"
    content = {"textType": "client-markdown", "title": title, "description": shown}
    return json.dumps({"version": "1.0", "source": "custom", "content": content})
