"""ReportLostRequest: what nobody has answered is reported once, to its uploader and the owner."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lambdas.handlers import notifications
from lambdas.handlers.report_lost_request import lambda_handler
from tests.fakes.runs import SPEC
from tests.unit.lambdas import test_start_run as start_run
from tests.unit.lambdas.conftest import CONTEXT, DATA_BUCKET, Aws
from tests.unit.lambdas.test_start_run import beside, scheduled, uploaded

BESIDE = "runs/bert.yaml.refused.txt"


def lose(*bodies: str) -> list[str]:
    """Hand each message to the function, as the dead-letter queue does; returns the numbers of those that failed."""
    failed = []
    for number, body in enumerate(bodies):
        record = {"messageId": str(number), "body": body, "eventSource": "aws:sqs", "eventSourceARN": start_run.QUEUE}
        answer = lambda_handler({"Records": [record]}, CONTEXT)
        failed += [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
    return failed


def test_a_lost_upload_is_reported_beside_the_file_and_by_one_message(aws: Aws) -> None:
    event = uploaded(aws, yaml.safe_dump(SPEC))
    assert lose(event, event) == []
    ((subject, message),) = aws.messages
    assert subject == "Trainflow: runs/bert.yaml was not answered"
    assert "see with 'trainflow list' whether its run has started" in message
    assert beside(aws)[BESIDE].startswith(message)


def test_a_lost_request_of_a_schedule_is_reported_by_one_message_for_each_time(aws: Aws) -> None:
    assert lose(scheduled(SPEC), scheduled(SPEC), scheduled(SPEC, at="2026-11-22T02:00:00Z")) == []
    assert [subject for subject, _ in aws.messages] == ["Trainflow: schedule nightly was not answered"] * 2


@pytest.mark.parametrize("body", ["", "no JSON", "[" * 100_000, '{"a":' * 100_000, "\x00", "{}", "1e999", "\ud800"])
def test_a_message_that_nobody_can_read_is_reported_too(aws: Aws, body: str) -> None:
    assert lose(body) == []
    assert [subject for subject, _ in aws.messages] == ["Trainflow: a run request was not answered"]


def test_the_spec_is_not_read(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lambdas.gateways.objects.read", lambda *_, **__: pytest.fail("it may end the function"))
    assert lose(uploaded(aws, b"\xff" * 10_000_000)) == []
    assert BESIDE in beside(aws)


def test_an_upload_that_is_gone_is_reported_by_a_message_only(aws: Aws) -> None:
    event = uploaded(aws, "x")
    aws.client("s3").delete_object(Bucket=DATA_BUCKET, Key="runs/bert.yaml")
    assert lose(event) == []
    assert len(aws.messages) == 1
    assert beside(aws) == {}


def test_a_request_that_was_refused_before_its_function_crashed_is_not_reported_again(aws: Aws) -> None:
    event = uploaded(aws, "version: 1\n")
    start_run.deliver(event)
    before = beside(aws)
    assert lose(event) == []
    assert len(aws.messages) == 1
    assert beside(aws) == before


class Crashed(BaseException):
    """The process ends."""


def test_a_crash_before_the_message_is_sent_loses_and_doubles_nothing(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = uploaded(aws, "x")

    def crash(**_: Any) -> None:
        raise Crashed

    with monkeypatch.context() as patched, pytest.raises(Crashed):
        patched.setattr(notifications, "notify", crash)
        lose(event)
    _expire_claims(aws)
    assert lose(event, event) == []
    assert len(aws.messages) == 1
    assert list(beside(aws)) == [BESIDE]


def _expire_claims(aws: Aws) -> None:
    """Let the time pass that another call has for sending."""
    table = aws.client("dynamodb")
    for item in table.scan(TableName="runs")["Items"]:
        for name, value in item.items():
            if "until" in name:
                item[name] = dict.fromkeys(value, "2000-01-01T00:00:00+00:00")
        table.put_item(TableName="runs", Item=item)


def test_a_message_that_no_channel_accepts_stays_in_the_queue(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("no channel")

    event = uploaded(aws, "x")
    with monkeypatch.context() as patched:
        patched.setattr(notifications, "notify", refuse)
        assert lose(event) == ["0"]
    assert lose(event) == []
    assert len(aws.messages) == 1
