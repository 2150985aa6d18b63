"""Handlers send messages through one function, over every channel."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.sns import sns_backends

from lambdas.gateways.notifications.topic import MAX_CHAT_LENGTH, MAX_SUBJECT_LENGTH
from lambdas.handlers import notifications
from lambdas.handlers.notifications import CHANNELS, notify
from lambdas.logic.fleet import IdleNodes
from lambdas.logic.messages import already_run, idle_nodes_released, refusal, subject
from tests.unit.lambdas.conftest import REGION, Aws
from trainflow.errors import InvalidRunSpec, ServiceUnavailable
from trainflow.nodes.instances import INSTANCE_TYPES
from trainflow.spec.run_spec import MAX_RUN_ID_LENGTH
from trainflow.workflow.run_record import RunStatus


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


RUN_ID, NAME, FILE = "r" * MAX_RUN_ID_LENGTH, "E" * 80, "runs/" + "f" * 1000 + ".yaml"
"""The longest names: a run id, an execution's name (Step Functions), and a file that S3 may hold."""


@pytest.mark.parametrize(
    ("title", "end"),
    [
        *((subject(name, status), f" {status}") for name in (RUN_ID, NAME) for status in RunStatus),
        (refusal(FILE, InvalidRunSpec("x"))[0], ".yaml was refused"),
        (already_run(FILE, RUN_ID, RunStatus.TIMED_OUT)[0], "has run before"),
        (
            idle_nodes_released(
                IdleNodes(instance_type=max(INSTANCE_TYPES, key=len), since=datetime(2026, 11, 21, tzinfo=UTC)),
                1000,
                region="us-west-2",
                now=datetime(2026, 11, 22, tzinfo=UTC),
            )[0],
            " released",
        ),
    ],
)
def test_a_subject_with_the_longest_name_is_sent_whole(aws: Aws, title: str, end: str) -> None:
    notify(subject=title, message="m")
    assert aws.messages == [(title, "m")]
    assert len(title) <= MAX_SUBJECT_LENGTH
    assert title.endswith(end)


def subscribed_queue(aws: Aws) -> str:
    """Queue that gets what is published."""
    queue = aws.client("sqs").create_queue(QueueName="subscriber")["QueueUrl"]
    arn = aws.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    aws.client("sns").subscribe(TopicArn=aws.topic_arn, Protocol="sqs", Endpoint=arn)
    return str(queue)


def test_a_queue_gets_the_text_and_a_chat_its_own_format(aws: Aws) -> None:
    queue = subscribed_queue(aws)
    notify(subject="Trainflow: demo FAILED", message='Run: demo\nError: "quoted" \\ <odd> & é')
    (got,) = aws.client("sqs").receive_message(QueueUrl=queue)["Messages"]
    delivered = json.loads(got["Body"])
    assert (delivered["Subject"], delivered["Message"]) == (
        "Trainflow: demo FAILED",
        'Run: demo\nError: "quoted" \\ <odd> & é',
    )
    topic = sns_backends[DEFAULT_ACCOUNT_ID][REGION].topics[aws.topic_arn]
    forms = json.loads(topic.sent_notifications[-1][1])
    assert json.loads(forms["https"]) == {
        "version": "1.0",
        "source": "custom",
        "content": {
            "textType": "client-markdown",
            "title": "Trainflow: demo FAILED",
            "description": 'Run: demo\nError: "quoted" \\ <odd> & é',
        },
    }


@pytest.mark.parametrize("text", ["x" * 100_000, '"' * 100_000, "\ud800" * 100_000, "😀" * 100_000])
def test_the_longest_message_fits_in_both_of_its_forms(aws: Aws, text: str) -> None:
    notify(subject="s", message=text)
    topic = sns_backends[DEFAULT_ACCOUNT_ID][REGION].topics[aws.topic_arn]
    sent = topic.sent_notifications[-1][1]
    assert len(sent.encode()) < 256 * 1024
    assert len(json.loads(json.loads(sent)["https"])["content"]["description"]) <= MAX_CHAT_LENGTH
