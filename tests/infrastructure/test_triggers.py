"""Runs start by upload and by the clock, once each; what went wrong is kept, told, and cleaned up after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
import yaml
from moto.events.models import EventPattern

from stacks.checks.packs import PACKS
from stacks.shared.acknowledgements import Reason
from tests.infrastructure.auditors import audit, unacknowledged
from tests.infrastructure.serverless import ASLEEP, WEEKLY, Deployed, configuration, deployed, text
from trainflow.configuration.deployment import ConfigurationError
from trainflow.deployment.functions import EVENT_HANDLERS
from trainflow.spec.run_spec import parse_run_spec

SECONDS = {function.name: function.timeout_seconds for function in EVENT_HANDLERS}
START_RUN_SECONDS, REPORT_SECONDS = SECONDS["StartRun"], SECONDS["ReportLostRequest"]


def rule(source: str) -> dict[str, Any]:
    rules = deployed().properties("AWS::Events::Rule").values()
    return next(found for found in rules if found["EventPattern"]["source"] == [source])


def schedule(name: str) -> dict[str, Any]:
    schedules = deployed().properties("AWS::Scheduler::Schedule").values()
    return next(found for found in schedules if found["Name"] == name)


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    return EventPattern(json.dumps(pattern), pattern).matches_event(event)  # type: ignore[arg-type]


def queue_of(reference: Any) -> dict[str, Any]:
    return deployed().properties("AWS::SQS::Queue")[deployed().find(reference)]


def is_dead_letter_queue(reference: Any) -> bool:
    return "RedrivePolicy" not in queue_of(reference)


# Uploads


@pytest.mark.parametrize(
    ("key", "starts"),
    [
        ("runs/demo.yaml", True),
        ("runs/demo.yml", True),
        ("runs/team/demo.json", True),
        ("runs/notes.txt", False),
        ("runs/demo-yaml", False),
        ("runs/demo.yaml.bak", False),
        ("runs/demo.yaml.refused.txt", False),
        ("runs/team/demo.json.refused.txt", False),
        ("data/demo.yaml", False),
        ("old-runs/demo.yaml", False),
    ],
)
def test_a_spec_below_runs_starts_a_run_and_nothing_else_does(key: str, starts: bool) -> None:
    pattern = rule("aws.s3")["EventPattern"]
    [bucket] = pattern["detail"]["bucket"]["name"]
    assert deployed().find(bucket).startswith("Data")
    known = {**pattern, "detail": {**pattern["detail"], "bucket": {"name": ["data"]}}}
    event = {"source": "aws.s3", "detail-type": "Object Created"}
    assert matches(known, event | {"detail": {"bucket": {"name": "data"}, "object": {"key": key}}}) is starts
    assert not matches(known, event | {"detail": {"bucket": {"name": "artifacts"}, "object": {"key": key}}})


def test_an_upload_goes_to_the_queue_as_it_came() -> None:
    [target] = rule("aws.s3")["Targets"]
    assert not is_dead_letter_queue(target["Arn"])
    assert not {"Input", "InputPath", "InputTransformer"} & set(target)


def test_start_run_may_write_and_delete_the_reasons_of_refusals_alone() -> None:
    for action in ("s3:PutObject", "s3:DeleteObject"):
        on = [resource for who, granted, resource, _ in deployed().grants() if (who, granted) == ("StartRun", action)]
        endings = {f"*.{suffix}.refused.txt" for suffix in ("yaml", "yml", "json")}
        assert {resource.rpartition("/runs/")[2] for resource in on} == endings


def test_clean_up_alone_may_send_events_and_only_those_about_the_end_of_a_run() -> None:
    [(who, resource, statement)] = [
        (who, resource, statement)
        for who, action, resource, statement in deployed().grants()
        if action == "events:PutEvents"
    ]
    assert who == "CleanUp"
    assert resource.endswith(":event-bus/default")
    assert statement["Condition"] == {
        "StringEquals": {"events:source": "trainflow", "events:detail-type": "Trainflow Run Ended"}
    }


# The queue


def test_requests_come_back_only_when_start_run_has_certainly_ended() -> None:
    requests = queue_of(rule("aws.s3")["Targets"][0]["Arn"])
    assert requests["VisibilityTimeout"] >= 6 * START_RUN_SECONDS


def test_a_request_is_tried_three_times_and_then_kept() -> None:
    redrive = queue_of(rule("aws.s3")["Targets"][0]["Arn"])["RedrivePolicy"]
    assert redrive["maxReceiveCount"] == 3
    assert is_dead_letter_queue(redrive["deadLetterTargetArn"])
    assert queue_of(redrive["deadLetterTargetArn"])["MessageRetentionPeriod"] == 14 * 86_400


def test_a_function_is_handed_one_message_at_a_time_so_that_no_other_shares_its_fate() -> None:
    mappings = deployed().properties("AWS::Lambda::EventSourceMapping").values()
    read = {deployed().name_of(mapping["FunctionName"]): mapping for mapping in mappings}
    assert set(read) == {"StartRun", "ReportLostRequest"} == deployed().who_may("sqs:ReceiveMessage")
    for mapping in read.values():
        assert deployed().resources("AWS::Lambda::Alias").get(mapping["FunctionName"]["Ref"])
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["BatchSize"] == 1
        assert mapping["ScalingConfig"] == {"MaximumConcurrency": 5}


def test_what_start_run_does_not_answer_is_read_by_the_function_that_reports_it() -> None:
    [requests, lost] = [
        deployed().find(mapping["EventSourceArn"])
        for name in ("StartRun", "ReportLostRequest")
        for mapping in deployed().properties("AWS::Lambda::EventSourceMapping").values()
        if deployed().name_of(mapping["FunctionName"]) == name
    ]
    queues = deployed().properties("AWS::SQS::Queue")
    assert deployed().find(queues[requests]["RedrivePolicy"]["deadLetterTargetArn"]) == lost
    assert queues[lost]["VisibilityTimeout"] >= 6 * REPORT_SECONDS
    assert deployed().find(rule("aws.s3")["Targets"][0]["DeadLetterConfig"]["Arn"]) == lost
    assert deployed().find(schedule("run-weekly")["Target"]["DeadLetterConfig"]["Arn"]) == lost


def test_every_queue_is_encrypted_and_refuses_the_clear() -> None:
    refusing = set()
    for policy in deployed().properties("AWS::SQS::QueuePolicy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Deny" and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}:
                refusing |= {deployed().find(queue) for queue in policy["Queues"]}
    queues = deployed().properties("AWS::SQS::Queue")
    assert refusing == set(queues)
    for queue in queues.values():
        assert deployed().find(queue["KmsMasterKeyId"]) in deployed().properties("AWS::KMS::Key")


def test_only_our_rules_may_send_to_our_queues() -> None:
    rules = deployed().resources("AWS::Events::Rule")
    for policy in deployed().properties("AWS::SQS::QueuePolicy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Allow":
                assert statement["Principal"] == {"Service": "events.amazonaws.com"}
                assert deployed().find(statement["Condition"]["ArnEquals"]["aws:SourceArn"]) in rules


def test_a_rule_may_send_to_each_queue_that_it_names() -> None:
    allowed = {
        (deployed().find(statement["Condition"]["ArnEquals"]["aws:SourceArn"]), deployed().find(queue))
        for policy in deployed().properties("AWS::SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        for queue in policy["Queues"]
        if statement["Effect"] == "Allow"
    }
    queues = deployed().resources("AWS::SQS::Queue")
    for logical_id, found in deployed().properties("AWS::Events::Rule").items():
        for target in found["Targets"]:
            named = {deployed().find(target["Arn"]), deployed().find(target["DeadLetterConfig"]["Arn"])} & set(queues)
            assert {(logical_id, queue) for queue in named} <= allowed


# Schedules


def test_a_schedule_of_the_configuration_is_meant_in_its_time_zone_and_to_the_minute() -> None:
    found = schedule("run-weekly")
    assert found["ScheduleExpression"] == WEEKLY["expression"]
    assert found["ScheduleExpressionTimezone"] == "Europe/Berlin"
    assert found["FlexibleTimeWindow"] == {"Mode": "OFF"}


def test_a_schedule_that_is_switched_off_sleeps() -> None:
    assert schedule(f"run-{ASLEEP['name']}")["State"] == "DISABLED"
    assert schedule("run-weekly")["State"] == "ENABLED"


def test_a_schedule_requests_the_run_of_its_spec_at_its_time() -> None:
    request = json.loads(schedule("run-weekly")["Target"]["Input"])
    assert (request["schedule"], request["scheduled_at"]) == ("weekly", "<aws.scheduler.scheduled-time>")
    assert request["overlap"] == "allow", "as before there was a choice"
    assert parse_run_spec(request["spec"]) == parse_run_spec(yaml.safe_load(Path("runs/demo.yaml").read_text()))


def test_a_scheduled_run_takes_the_same_way_as_an_uploaded_one() -> None:
    assert deployed().find(schedule("run-weekly")["Target"]["Arn"]) == deployed().find(
        rule("aws.s3")["Targets"][0]["Arn"]
    )


def test_a_schedule_may_send_to_its_queues_and_do_nothing_else() -> None:
    target = schedule("run-weekly")["Target"]
    role = deployed().find(target["RoleArn"])
    may = {(action, arn) for who, action, arn, _ in deployed().grants() if who == role and action[:3] != "kms"}
    queues = (target["Arn"], target["DeadLetterConfig"]["Arn"])
    assert may == {("sqs:SendMessage", text(queue)) for queue in queues}


def test_a_schedule_of_a_spec_that_cannot_run_is_refused_before_anything_is_deployed() -> None:
    with pytest.raises(ConfigurationError, match=r"schedules\.weekly: runs/nowhere.* read"):
        Deployed(configuration(schedules=[WEEKLY | {"spec": "runs/nowhere.yaml"}]))


# Supervision of the runs


@pytest.mark.parametrize(
    ("status", "machine", "cleans_up"),
    [
        ("ABORTED", "training", True),
        ("TIMED_OUT", "training", True),
        ("FAILED", "training", True),
        ("SUCCEEDED", "training", True),
        ("RUNNING", "training", True),  # a run that is redriven has its row again
        ("ABORTED", "watch-job", False),
    ],
)
def test_every_end_of_a_run_is_recorded_and_cleaned_up_after(status: str, machine: str, cleans_up: bool) -> None:
    pattern = rule("aws.states")["EventPattern"]
    [watched] = pattern["detail"]["stateMachineArn"]
    machines = deployed().properties("AWS::StepFunctions::StateMachine")
    assert machines[deployed().find(watched)]["StateMachineName"] == "blue-training"
    known = {**pattern, "detail": {**pattern["detail"], "stateMachineArn": ["training"]}}
    event = {"source": "aws.states", "detail-type": "Step Functions Execution Status Change"}
    assert matches(known, event | {"detail": {"status": status, "stateMachineArn": machine}}) is cleans_up


def test_the_clean_up_is_called_by_its_rule_only() -> None:
    [target] = rule("aws.states")["Targets"]
    assert deployed().name_of(target["Arn"]) == "CleanUp"
    [permission] = deployed().properties("AWS::Lambda::Permission").values()
    assert permission["FunctionName"] == target["Arn"], "an alias has a policy of its own"
    assert permission["Principal"] == "events.amazonaws.com"
    assert (
        deployed().resources("AWS::Events::Rule")[deployed().find(permission["SourceArn"])]["Type"]
        == "AWS::Events::Rule"
    )


def test_nodes_are_counted_every_five_minutes() -> None:
    survey = schedule("survey-fleet")
    assert (survey["ScheduleExpression"], survey["State"]) == ("rate(5 minutes)", "ENABLED")
    assert deployed().name_of(survey["Target"]["Arn"]) == "SurveyFleet"
    assert deployed().find(survey["Target"]["RoleArn"]) in deployed().who_may(
        "lambda:InvokeFunction", on=text(survey["Target"]["Arn"])
    )


# Everywhere


def targets() -> list[dict[str, Any]]:
    of_rules = [target for found in deployed().properties("AWS::Events::Rule").values() for target in found["Targets"]]
    return of_rules + [found["Target"] for found in deployed().properties("AWS::Scheduler::Schedule").values()]


def test_nothing_is_tried_more_than_three_times_or_after_an_hour() -> None:
    for target in targets():
        assert target["RetryPolicy"]["MaximumRetryAttempts"] <= 2
        assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] <= 3600


def test_what_could_not_be_handed_over_is_kept() -> None:
    assert len(targets()) == 5
    for target in targets():
        assert is_dead_letter_queue(target["DeadLetterConfig"]["Arn"])


def test_alarms_find_every_dead_letter_queue() -> None:
    told = {queue.node.path.split("/")[-1] for queue in deployed().triggers.dead_letter_queues.values()}
    kept = [queue for queue in deployed().properties("AWS::SQS::Queue").values() if "RedrivePolicy" not in queue]
    assert len(told) == len(kept)


def test_the_packs_of_rules_find_nothing_that_is_not_acknowledged() -> None:
    report = audit(deployed().app)
    assert set(report) == set(PACKS)
    assert unacknowledged(report) == []


def test_whatever_stands_stands_for_one_of_the_reasons() -> None:
    reasons = {
        reason
        for stack in (deployed().orchestration, deployed().triggers)
        for construct in stack.node.find_all()
        for entry in construct.node.metadata
        if entry.type == cdk.Validations.ACKNOWLEDGED_RULES_METADATA_KEY
        for reason in entry.data.values()
    }
    assert reasons <= {reason.value for reason in Reason}
    assert {Reason.OBJECTS_ARE_NAMED_BY_RUNS.value, Reason.END_OF_THE_WAY.value} <= reasons
