"""Handlers send messages through one function, over every channel."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lambdas.handlers import notifications
from lambdas.handlers.notifications import CHANNELS, notify
from tests.unit.lambdas.conftest import Aws
from trainflow.errors import ServiceUnavailable


@dataclass
class Chat:
    """A second channel, such as a webhook."""

    fails: bool = False
    sent: list[tuple[str, str]] = field(default_factory=list)

    def send(self, *, subject: str, message: str) -> None:
        if self.fails:
            raise ServiceUnavailable("the chat did not answer")
        self.sent.append((subject, message))


def with_chat(monkeypatch: pytest.MonkeyPatch, chat: Chat) -> None:
    monkeypatch.setattr(notifications, "CHANNELS", (lambda: chat, *CHANNELS))


def test_a_message_goes_over_every_channel(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Chat()
    with_chat(monkeypatch, chat)
    notify(subject="Trainflow: demo SUCCEEDED", message="Run: demo")
    assert chat.sent == aws.messages == [("Trainflow: demo SUCCEEDED", "Run: demo")]


def test_a_channel_that_fails_keeps_no_other_from_the_message(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    with_chat(monkeypatch, Chat(fails=True))
    notify(subject="s", message="m")
    assert aws.messages == [("s", "m")], "one has it: a retry would send it there twice"


def test_a_message_that_no_channel_took_is_worth_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "CHANNELS", (lambda: Chat(fails=True), lambda: Chat(fails=True)))
    with pytest.raises(ServiceUnavailable, match="the chat did not answer"):
        notify(subject="s", message="m")


def test_one_module_alone_knows_the_channels() -> None:
    users = {
        path.relative_to("lambdas").as_posix()
        for path in Path("lambdas").rglob("*.py")
        if re.search(r"gateways(\.| import .*\b)notifications", path.read_text())
    }
    assert users == {"handlers/notifications.py"}
