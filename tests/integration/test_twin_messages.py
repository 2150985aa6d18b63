"""Events, messages and batches in the twin: what AWS sends, and what it refuses (recorded answers, see
`tests/assets/aws/`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws.deployment import create_bucket
from local.aws.queues import failed_messages
from local.aws.server import AwsServer
from tests.integration.permitted import FOR_RULES


@pytest.fixture(scope="module")
def queue(aws: AwsServer) -> str:
    """URL of a queue to which rules may send."""
    attributes = {"Policy": FOR_RULES, "MaximumMessageSize": "1024"}
    return str(aws.client("sqs").create_queue(QueueName="messages", Attributes=attributes)["QueueUrl"])


@pytest.fixture(scope="module")
def queue_arn(aws: AwsServer, queue: str) -> str:
    found = aws.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    return str(found["Attributes"]["QueueArn"])


def received(aws: AwsServer, queue: str) -> list[dict[str, Any]]:
    assert aws.targets.drain(20)
    sqs = aws.client("sqs")
    messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", ())
    for message in messages:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    return [json.loads(message["Body"]) for message in messages]


def refused(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return str(error.value.response["Error"]["Code"])


@pytest.mark.parametrize("versioned", [False, True])
def test_the_events_of_objects_have_the_fields_that_s3_sends(
    aws: AwsServer, queue: str, queue_arn: str, versioned: bool
) -> None:
    s3, name = aws.client("s3"), f"events-{versioned}".lower()
    create_bucket(aws, name)
    if versioned:
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    s3.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration={"EventBridgeConfiguration": {}})
    pattern = {"source": ["aws.s3"], "detail": {"bucket": {"name": [name]}}}
    aws.client("events").put_rule(Name=name, EventPattern=json.dumps(pattern))
    aws.client("events").put_targets(Rule=name, Targets=[{"Id": "1", "Arn": queue_arn}])

    first, second = (s3.put_object(Bucket=name, Key="a", Body=body, Tagging="k=v") for body in (b"1", b"22"))
    s3.put_object_tagging(Bucket=name, Key="a", Tagging={"TagSet": [{"Key": "k", "Value": "w"}]})
    s3.delete_object(Bucket=name, Key="a")

    found = received(aws, queue)
    events = {event["detail-type"]: event["detail"] for event in found}
    assert sorted(event["detail-type"] for event in found) == [
        "Object Created",
        "Object Created",
        "Object Deleted",
        "Object Tags Added",
    ]
    created = [event["detail"]["object"] for event in found if event["detail-type"] == "Object Created"]
    assert {each["size"] for each in created} == {1, 2}
    assert all(event["detail"]["reason"] == "PutObject" for event in found if "Created" in event["detail-type"])
    deletion = "Delete Marker Created" if versioned else "Permanently Deleted"
    assert events["Object Deleted"]["deletion-type"] == deletion
    tagged = events["Object Tags Added"]
    assert "reason" not in tagged and {"size", "sequencer"}.isdisjoint(tagged["object"])
    if versioned:
        assert {each["version-id"] for each in created} == {first["VersionId"], second["VersionId"]}
    else:
        assert all("version-id" not in event["detail"]["object"] for event in found)


def test_an_event_has_the_id_of_its_answer(aws: AwsServer, queue: str, queue_arn: str) -> None:
    events = aws.client("events")
    events.put_rule(Name="ids", EventPattern=json.dumps({"source": ["us"]}))
    events.put_targets(Rule="ids", Targets=[{"Id": "1", "Arn": queue_arn}])
    answer = events.put_events(Entries=[{"Source": "us", "DetailType": "t", "Detail": "{}"}])
    assert [event["id"] for event in received(aws, queue)] == [answer["Entries"][0]["EventId"]]
    events.disable_rule(Name="ids")


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"Source": "aws.x", "DetailType": "t", "Detail": "{}"}, "NotAuthorizedForSourceException"),
        ({"Source": "us", "DetailType": "t", "Detail": "[]"}, "MalformedDetail"),
        ({"Source": "us", "DetailType": "t", "Detail": "{"}, "MalformedDetail"),
        ({"Source": "us", "DetailType": "t"}, "InvalidArgument"),
    ],
)
def test_an_entry_that_eventbridge_refuses_fails(aws: AwsServer, entry: dict[str, str], code: str) -> None:
    answer = aws.client("events").put_events(Entries=[entry, {"Source": "us", "DetailType": "t", "Detail": "{}"}])
    assert answer["FailedEntryCount"] == 1
    assert answer["Entries"][0]["ErrorCode"] == code
    assert "EventId" in answer["Entries"][1]


def test_rules_with_invalid_patterns_and_targets_with_invalid_inputs_are_refused(
    aws: AwsServer, queue_arn: str
) -> None:
    events = aws.client("events")
    assert refused(events.put_rule, Name="bad", EventPattern='{"a": "b"}') == "InvalidEventPatternException"
    event = dict.fromkeys(("id", "account", "source", "time", "region", "detail-type"), "x")
    tested = events.test_event_pattern(EventPattern='{"source": ["x"]}', Event=json.dumps(event))
    assert tested["Result"] is True
    assert refused(events.test_event_pattern, EventPattern="{}", Event="[]") == "ValidationException"
    events.put_rule(Name="inputs", EventPattern=json.dumps({"source": ["inputs"]}))
    for given in (
        {"InputPath": "$.detail", "Input": "{}"},
        {"InputTransformer": {"InputPathsMap": {"a": "$.a"}, "InputTemplate": '"<b>"'}},
    ):
        target = {"Id": "1", "Arn": queue_arn, **given}
        assert refused(events.put_targets, Rule="inputs", Targets=[target]) == "ValidationException"


def test_messages_beyond_a_queues_limit_are_refused(aws: AwsServer, queue: str) -> None:
    sqs = aws.client("sqs")
    attributes = {"name": {"DataType": "String", "StringValue": "x" * 1000}}
    assert refused(sqs.send_message, QueueUrl=queue, MessageBody="x" * 1025) == "InvalidParameterValue"
    assert (
        refused(sqs.send_message, QueueUrl=queue, MessageBody="x" * 100, MessageAttributes=attributes)
        == "InvalidParameterValue"
    )
    entries = [{"Id": "long", "MessageBody": "x" * 1025}, {"Id": "short", "MessageBody": "{}"}]
    answer = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in answer["Failed"]] == ["long"]
    assert [each["Id"] for each in answer["Successful"]] == ["short"]
    assert received(aws, queue) == [{}]
    too_many = [{"Id": str(number), "ReceiptHandle": str(number)} for number in range(11)]
    assert "TooManyEntries" in refused(sqs.delete_message_batch, QueueUrl=queue, Entries=too_many)


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ("null", set()),
        ("{}", set()),
        ('{"batchItemFailures": null}', set()),
        ('{"batchItemFailures": []}', set()),
        ('{"batchItemFailures": [{"itemIdentifier": "a"}]}', {"a"}),
        ('{"batchItemFailures": [{"itemIdentifier": ""}]}', {"a", "b"}),
        ('{"batchItemFailures": [{"itemIdentifier": null}]}', {"a", "b"}),
        ('{"batchItemFailures": [{"item": "a"}]}', {"a", "b"}),
        ('{"batchItemFailures": [{"itemIdentifier": "other"}]}', {"a", "b"}),
        ('{"batchItemFailures": "a"}', {"a", "b"}),
        ('"done"', {"a", "b"}),
        ("no json", {"a", "b"}),
    ],
)
def test_an_answer_of_another_form_fails_the_whole_batch(answer: str, failed: set[str]) -> None:
    assert failed_messages(answer.encode(), {"a", "b"}) == failed
