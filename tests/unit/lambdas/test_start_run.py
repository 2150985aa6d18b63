"""StartRun: every message starts its run, is refused once, or is tried again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from moto.core import DEFAULT_ACCOUNT_ID
from moto.sqs.models import sqs_backends

from lambdas.handlers.start_run import lambda_handler
from lambdas.logic.overlaps import Turn, decide_turn, is_going
from lambdas.logic.run_requests import Scheduled, parse_request
from tests.fakes.runs import SPEC, spec_with
from tests.unit.lambdas.conftest import CONTEXT, DATA_BUCKET, Aws
from trainflow.errors import RunRequestInvalid
from trainflow.workflow.run_status import RunStatus
from trainflow.workflow.run_table import ScheduleRow

NOW = datetime(2026, 11, 21, 2, tzinfo=UTC)


QUEUE = "arn:aws:sqs:us-west-2:123456789012:requests"


def deliver(*bodies: str) -> list[str]:
    """Hand a batch to the function; returns the numbers of the messages that it reports as failed."""
    common = {"eventSource": "aws:sqs", "eventSourceARN": QUEUE}
    records = [{"messageId": str(number), "body": body, **common} for number, body in enumerate(bodies)]
    answer = lambda_handler({"Records": records}, CONTEXT)
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def uploaded(aws: Aws, text: str | bytes, *, key: str = "runs/bert.yaml") -> str:
    """Upload a file; the event about it."""
    version = aws.client("s3").put_object(Bucket=DATA_BUCKET, Key=key, Body=text)["VersionId"]
    return json.dumps({"detail": {"bucket": {"name": DATA_BUCKET}, "object": {"key": key, "version-id": version}}})


def scheduled(spec: Any, *, at: str = "2026-11-21T02:00:00Z", **fields: str) -> str:
    return json.dumps({"schedule": "nightly", "scheduled_at": at, "spec": spec, **fields})


def test_an_uploaded_spec_is_the_input_of_an_execution_of_its_name(aws: Aws) -> None:
    assert deliver(uploaded(aws, yaml.safe_dump(SPEC))) == []
    ((name, document),) = aws.executions().items()
    assert name.startswith("bert-")
    assert document == SPEC
    assert aws.messages == []


def test_the_input_of_an_execution_names_the_account_of_the_upload_or_the_schedule(aws: Aws) -> None:
    event = json.loads(uploaded(aws, yaml.safe_dump(SPEC)))
    event["detail"]["requester"] = "123456789012"
    assert deliver(json.dumps(event), scheduled(SPEC)) == []
    assert (
        list(aws.executions().values()).count({**SPEC, "started_by": {"kind": "upload", "name": "123456789012"}}) == 1
    )
    assert list(aws.executions().values()).count({**SPEC, "started_by": {"kind": "schedule", "name": "nightly"}}) == 1


@pytest.mark.parametrize(
    "request_of", [lambda aws, spec: uploaded(aws, yaml.safe_dump(spec)), lambda _, spec: scheduled(spec)]
)
def test_a_spec_that_names_its_owner_is_refused(aws: Aws, request_of: Callable[[Aws, Any], str]) -> None:
    deliver(request_of(aws, {**SPEC, "started_by": {"kind": "schedule", "name": "other"}}))
    assert aws.executions() == {}
    ((_, message),) = aws.messages
    assert "started_by" in message


def test_a_repeated_event_starts_one_run_and_sends_no_message(aws: Aws) -> None:
    event = uploaded(aws, yaml.safe_dump(SPEC))
    assert deliver(event, event) == []
    assert deliver(event) == []
    assert len(aws.executions()) == 1
    assert aws.messages == []


def test_a_spec_uploaded_again_after_its_run_is_answered_that_nothing_was_started(aws: Aws) -> None:
    deliver(uploaded(aws, yaml.safe_dump(SPEC)))
    (name,) = aws.executions()
    arn = f"{aws.state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
    aws.client("stepfunctions").stop_execution(executionArn=arn)
    assert deliver(uploaded(aws, json.dumps(SPEC), key="runs/again.json")) == []
    ((subject, message),) = aws.messages
    assert subject == f"Trainflow: {name} has run before"
    assert "ended ABORTED. Nothing was started." in message


def test_an_uploader_learns_beside_the_file_that_its_spec_has_run_before(aws: Aws) -> None:
    deliver(uploaded(aws, yaml.safe_dump(SPEC)))
    end_all(aws)
    deliver(uploaded(aws, json.dumps(SPEC), key="runs/again.json"))
    assert "Nothing was started." in beside(aws)["runs/again.json.refused.txt"]
    deliver(uploaded(aws, json.dumps(spec_with(name="other")), key="runs/again.json"))
    assert beside(aws) == {}, "a spec that starts withdraws it"


def test_a_file_that_is_uploaded_again_and_again_is_told_of_once(aws: Aws) -> None:
    deliver(uploaded(aws, yaml.safe_dump(SPEC)))
    end_all(aws)
    again = [uploaded(aws, yaml.safe_dump(SPEC)) for _ in range(3)]
    assert deliver(*again, again[0]) == []
    assert len(aws.messages) == 1
    deliver(uploaded(aws, yaml.safe_dump(SPEC), key="runs/copy.yaml"))
    assert len(aws.messages) == 2, "another file has another owner"


def at(event: str, time: datetime) -> str:
    """The event with its time, as EventBridge writes it."""
    return json.dumps(json.loads(event) | {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ")})


@pytest.mark.parametrize(("minutes", "messages"), [(-5, 0), (5, 1)], ids=["late", "new"])
def test_an_event_that_comes_again_after_the_end_of_its_run_is_no_new_upload(
    aws: Aws, minutes: float, messages: int
) -> None:
    event = at(uploaded(aws, yaml.safe_dump(SPEC)), datetime.now(UTC) + timedelta(minutes=minutes))
    deliver(event)
    end_all(aws)
    assert deliver(event) == []
    assert len(aws.messages) == messages
    assert list(beside(aws)) == ["runs/bert.yaml.refused.txt"] * messages


def test_an_upload_in_the_second_of_the_end_is_a_new_one(aws: Aws) -> None:
    event = uploaded(aws, yaml.safe_dump(SPEC))
    deliver(event)
    (arn,) = end_all(aws)
    ended_at = aws.client("stepfunctions").describe_execution(executionArn=arn)["stopDate"]
    assert deliver(at(event, ended_at)) == []
    assert len(aws.messages) == 1, "the times of events have no fraction of a second"


def test_each_version_of_a_file_starts_its_own_run(aws: Aws) -> None:
    events = [uploaded(aws, yaml.safe_dump(spec_with(compute__num_nodes=nodes))) for nodes in (1, 2)]
    assert deliver(*events) == []
    assert sorted(spec["compute"]["num_nodes"] for spec in aws.executions().values()) == [1, 2]


def test_a_schedule_starts_a_run_each_time(aws: Aws) -> None:
    assert deliver(scheduled(SPEC), scheduled(SPEC), scheduled(SPEC, at="2026-11-22T02:00:00Z")) == []
    assert len(aws.executions()) == 2
    assert aws.messages == []


DAYS = [f"2026-11-2{day}T02:00:00Z" for day in range(1, 6)]


def end_all(aws: Aws) -> list[str]:
    """Stop all executions; returns their ARNs."""
    runs = aws.state_machine_arn.replace(":stateMachine:", ":execution:")
    arns = [f"{runs}:{name}" for name in aws.executions()]
    for arn in arns:
        aws.client("stepfunctions").stop_execution(executionArn=arn)
    return arns


def put_back(aws: Aws) -> list[str]:
    """Messages that wait in the queue; they are taken out of it."""
    sqs = aws.client("sqs")
    url = sqs.get_queue_url(QueueName="requests")["QueueUrl"]
    (queue,) = sqs_backends[DEFAULT_ACCOUNT_ID]["us-west-2"].queues.values()
    for message in queue._messages:
        assert message.delayed, "SQS holds it back for a while"
        message.delayed_until = 0
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    for message in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return [message["Body"] for message in found]


def test_a_schedule_that_skips_starts_no_run_while_its_last_one_is_going_and_says_so_once(aws: Aws) -> None:
    assert deliver(scheduled(SPEC, at=DAYS[0], overlap="skip")) == []
    for _ in range(2):
        assert deliver(scheduled(SPEC, at=DAYS[1], overlap="skip")) == []
    assert len(aws.executions()) == 1
    ((subject, text),) = aws.messages
    assert subject == "Trainflow: schedule nightly was skipped"
    assert "What was done: It was not started." in text
    end_all(aws)
    assert deliver(scheduled(SPEC, at=DAYS[2], overlap="skip")) == []
    assert len(aws.executions()) == 2


def test_a_schedule_that_queues_starts_one_run_when_its_last_one_has_ended(aws: Aws) -> None:
    aws.client("sqs").create_queue(QueueName="requests")
    queued = [scheduled(SPEC, at=day, overlap="queue") for day in DAYS]
    assert deliver(queued[0]) == []
    for _ in range(2):  # SQS delivers at least once
        deliver(queued[1])
    assert put_back(aws) == [queued[1]] * 2
    deliver(queued[2])
    assert put_back(aws) == [], "one waits, a second one does not"
    deliver(queued[1])
    assert put_back(aws) == [queued[1]], "it asks again"
    assert [subject for subject, _ in aws.messages] == [
        "Trainflow: schedule nightly waits",
        "Trainflow: schedule nightly was skipped",
    ]
    end_all(aws)
    deliver(queued[3])
    assert len(aws.executions()) == 1, "the turn is of the one that waits"
    deliver(queued[1])
    assert len(aws.executions()) == 2
    end_all(aws)
    deliver(queued[1])
    assert len(aws.executions()) == 2, "a second delivery starts nothing"
    assert put_back(aws) == []
    deliver(queued[4])
    assert len(aws.executions()) == 3


def test_a_request_that_was_lost_while_it_waited_blocks_no_other() -> None:
    request = parse_request(scheduled(SPEC, at=DAYS[2], overlap="queue"))
    assert isinstance(request, Scheduled)
    row = ScheduleRow(schedule="nightly", execution_arn="arn:x", waiting=DAYS[1], seen_at=NOW)
    turns = [decide_turn(request, row, is_going=False, now=NOW + timedelta(minutes=late)) for late in (2, 40)]
    assert turns == [Turn.SKIP, Turn.START]


def test_a_run_that_is_just_being_started_counts_as_going() -> None:
    row = ScheduleRow(schedule="nightly", execution_arn="arn:x", seen_at=NOW)
    assert is_going(row, None, now=NOW + timedelta(seconds=5))
    assert not is_going(row, None, now=NOW + timedelta(hours=1)), "it was started long ago, and Step Functions forgot"
    assert not is_going(row, RunStatus.FAILED, now=NOW)


def test_a_request_whose_function_crashed_before_the_start_starts_when_it_is_delivered_again(
    aws: Aws, refusing: Callable[[str, str | None], None]
) -> None:
    message = scheduled(SPEC, overlap="skip")
    refusing("StartExecution", "ServiceUnavailable")
    assert deliver(message) == ["0"]
    refusing("StartExecution", None)
    assert deliver(message) == []
    assert len(aws.executions()) == 1
    assert aws.messages == []


def test_an_invalid_spec_is_reported_once_and_not_retried(aws: Aws) -> None:
    assert deliver(uploaded(aws, yaml.safe_dump(spec_with(compute__num_nodes=0)))) == []
    assert aws.executions() == {}
    ((subject, message),) = aws.messages
    assert subject == "Trainflow: runs/bert.yaml was refused"
    assert "compute.num_nodes: must be at least 1, got 0" in message
    assert "What to do: Correct the named field" in message


def beside(aws: Aws) -> dict[str, str]:
    """Contents of the objects below runs/ that are no specs."""
    s3 = aws.client("s3")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=DATA_BUCKET).get("Contents", ())]
    return {
        key: s3.get_object(Bucket=DATA_BUCKET, Key=key)["Body"].read().decode() for key in keys if key.endswith(".txt")
    }


def test_the_reason_of_a_refusal_lies_beside_the_upload_until_the_spec_is_accepted(aws: Aws) -> None:
    deliver(uploaded(aws, yaml.safe_dump(spec_with(compute__num_nodes=0)), key="runs/team/bert.yaml"))
    ((key, text),) = beside(aws).items()
    assert key == "runs/team/bert.yaml.refused.txt"
    assert "compute.num_nodes: must be at least 1, got 0" in text
    assert "What to do: Correct the named field" in text
    event = {"detail": {"bucket": {"name": DATA_BUCKET}, "object": {"key": key}}}
    with pytest.raises(RunRequestInvalid):
        parse_request(json.dumps(event))
    deliver(uploaded(aws, yaml.safe_dump(SPEC), key="runs/team/bert.yaml"))
    assert beside(aws) == {}


def test_each_upload_of_an_invalid_file_is_reported_however_often_its_event_comes(aws: Aws) -> None:
    text = yaml.safe_dump(spec_with(compute__num_nodes=0))
    events = [uploaded(aws, text) for _ in range(2)]
    assert deliver(*events, *events) == []
    assert [subject for subject, _ in aws.messages] == ["Trainflow: runs/bert.yaml was refused"] * 2


@pytest.mark.parametrize("first", ["refused", "accepted"])
def test_an_event_that_comes_late_changes_nothing_beside_the_newer_file(aws: Aws, first: str) -> None:
    texts = {"refused": yaml.safe_dump(spec_with(compute__num_nodes=0)), "accepted": yaml.safe_dump(SPEC)}
    old = uploaded(aws, texts.pop(first))
    (new,) = (uploaded(aws, text) for text in texts.values())
    deliver(new)
    found = beside(aws)
    assert len(found) == (first == "accepted")
    for _ in range(2):
        assert deliver(old) == []
        assert beside(aws) == found
    assert len(aws.messages) == 1


def test_a_schedule_that_was_told_to_be_skipped_does_not_start_when_its_request_comes_again(aws: Aws) -> None:
    for day in DAYS[:2]:
        deliver(scheduled(SPEC, at=day, overlap="skip"))
    end_all(aws)
    assert deliver(scheduled(SPEC, at=DAYS[1], overlap="skip")) == []
    assert len(aws.executions()) == 1
    assert len(aws.messages) == 1


def test_code_that_is_not_packed_is_refused_at_once(aws: Aws) -> None:
    deliver(uploaded(aws, yaml.safe_dump(spec_with(workload__code="./my-project"))))
    assert aws.executions() == {}
    assert "workload.code is './my-project', which has not been packed" in beside(aws)["runs/bert.yaml.refused.txt"]


def test_a_file_that_is_gone_and_a_schedule_are_not_explained_in_the_bucket(aws: Aws) -> None:
    gone = {"detail": {"bucket": {"name": DATA_BUCKET}, "object": {"key": "runs/gone.yaml"}}}
    deliver(json.dumps(gone), scheduled({}))
    assert beside(aws) == {}
    assert len(aws.messages) == 2


@pytest.mark.parametrize("operation", ["PutObject", "DeleteObject"])
def test_a_reason_that_cannot_be_written_or_deleted_keeps_no_message_and_no_run_back(
    aws: Aws, refusing: Callable[[str, str | None], None], operation: str
) -> None:
    bad = uploaded(aws, yaml.safe_dump(spec_with(compute__num_nodes=0)), key="runs/bad.yaml")
    good = uploaded(aws, yaml.safe_dump(SPEC))
    refusing(operation, "AccessDenied")
    assert deliver(bad, good) == []
    assert [subject for subject, _ in aws.messages] == ["Trainflow: runs/bad.yaml was refused"]
    assert len(aws.executions()) == 1


@pytest.mark.parametrize(
    ("body", "subject"),
    [
        ("hello", "Trainflow: a run request was refused"),
        (scheduled({}), "Trainflow: schedule nightly was refused"),
        (
            json.dumps({"detail": {"bucket": {"name": DATA_BUCKET}, "object": {"key": "runs/gone.yaml"}}}),
            "Trainflow: runs/gone.yaml was refused",
        ),
        (
            json.dumps({"detail": {"bucket": {"name": "no-bucket"}, "object": {"key": "runs/x.yaml"}}}),
            "Trainflow: runs/x.yaml was refused",
        ),
    ],
    ids=["no request", "a schedule without a spec", "no object", "no bucket"],
)
def test_every_refused_request_is_reported_by_its_name(aws: Aws, body: str, subject: str) -> None:
    assert deliver(body) == []
    assert [sent for sent, _ in aws.messages] == [subject]


def test_a_name_too_long_for_a_subject_is_reported_too(aws: Aws) -> None:
    key = "runs/" + "ü\n" * 80 + ".yaml"
    assert deliver(uploaded(aws, "[]", key=key)) == []
    ((subject, message),) = aws.messages
    assert len(subject) < 100
    assert subject.isascii()
    assert subject.isprintable()
    assert key in message


@pytest.mark.parametrize("operation", ["GetObject", "StartExecution", "Publish"])
def test_trouble_with_aws_leaves_the_message_in_the_queue(
    aws: Aws, refusing: Callable[[str, str | None], None], operation: str
) -> None:
    good, bad = uploaded(aws, yaml.safe_dump(SPEC)), uploaded(aws, "[]", key="runs/bad.yaml")
    refusing(operation, "ThrottlingException")
    assert deliver(good, bad) == {"GetObject": ["0", "1"], "StartExecution": ["0"], "Publish": ["1"]}[operation]


def test_one_message_in_trouble_does_not_hold_up_the_others(
    aws: Aws, refusing: Callable[[str, str | None], None]
) -> None:
    events = [uploaded(aws, yaml.safe_dump(SPEC)), scheduled(spec_with(name="other"))]
    refusing("GetObject", "SlowDown")
    assert deliver(*events) == ["0"]
    assert [name.rsplit("-", 1)[0] for name in aws.executions()] == ["other"]
