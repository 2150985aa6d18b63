"""Makes the resources of the triggers stack, which start runs and clean up after them, by API calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.sqs.models import sqs_backends

from local.aws.access import granted
from local.aws.events import STATUS_CHANGE

if TYPE_CHECKING:
    from local.aws.server import AwsServer

REQUESTS = "trainflow-run-requests"
LOST_REQUESTS = f"{REQUESTS}-dead-letters"
MAX_RECEIVES = 3
VISIBILITY_SECONDS = 360
"""Six times the timeout of the queues' functions, as Lambda asks of the queues it reads."""
BATCH, MAX_CONCURRENCY = 1, 5
"""As in the stacks: messages in a call, and calls at the same time."""

SURVEY_RATE = "rate(5 minutes)"


def make(
    aws: AwsServer,
    functions: Mapping[str, str],
    *,
    data_bucket: str,
    training_state_machine_arn: str,
    role: str,
    key: str,
) -> dict[str, list[str]]:
    """Make the queue of run requests, the rules for uploads and aborted runs, and the survey's schedule.

    Args:
        aws: The running endpoint.
        functions: ARN of each function's alias, by the function's name.
        data_bucket: The bucket in which an uploaded `runs/*.yaml` starts a run.
        training_state_machine_arn: The state machine whose aborted executions are cleaned up.
        role: The role with which the schedule invokes its function.
        key: ARN of the KMS key that encrypts the queues.

    Returns:
        ARNs of what was made, by their names in the templates' policies.
    """
    requests, dead_letters = _queue_with_dead_letters(aws, key)
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=data_bucket, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    specs = [{"wildcard": f"runs/*.{ending}"} for ending in ("yaml", "yml", "json")]
    uploads = _rule(
        aws,
        "trainflow-upload",
        requests,
        source="aws.s3",
        detail_type="Object Created",
        detail={"bucket": {"name": [data_bucket]}, "object": {"key": specs}},
    )
    ended = _rule(
        aws,
        "trainflow-clean-up",
        functions["CleanUp"],
        source="aws.states",
        detail_type=STATUS_CHANGE,
        detail={
            "status": ["RUNNING", "SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"],
            "stateMachineArn": [training_state_machine_arn],
        },
    )
    aws.client("scheduler").create_schedule(
        Name="trainflow-survey-fleet",
        ScheduleExpression=SURVEY_RATE,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": functions["SurveyFleet"], "RoleArn": role, "RetryPolicy": {"MaximumRetryAttempts": 0}},
    )
    aws.client("lambda").add_permission(
        FunctionName=functions["CleanUp"],
        StatementId="rule",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
        SourceArn=ended,
    )
    values = {
        "triggers.RunRequests.Arn": [requests],
        "triggers.DeadLettersRunRequests.Arn": [dead_letters],
        "triggers.Uploads.Arn": [uploads],
        "triggers.AbortedRuns.Arn": [ended],
    }
    queues = sqs_backends[DEFAULT_ACCOUNT_ID][requests.split(":")[3]].queues
    for template, arn in (("RunRequests", requests), ("DeadLettersRunRequests", dead_letters)):
        queues[arn.rsplit(":", 1)[1]].policy = granted.policy_of(f"triggers.{template}", values)
    return values


def read(aws: AwsServer, queue: str, function: str) -> None:
    """Let Lambda read a queue, with the role of the function, which has to have its policies."""
    aws.client("lambda").create_event_source_mapping(
        EventSourceArn=f"arn:aws:sqs:{function.split(':')[3]}:{DEFAULT_ACCOUNT_ID}:{queue}",
        FunctionName=function,
        FunctionResponseTypes=["ReportBatchItemFailures"],
        BatchSize=BATCH,
        ScalingConfig={"MaximumConcurrency": MAX_CONCURRENCY},
    )


def _queue_with_dead_letters(aws: AwsServer, key: str) -> tuple[str, str]:
    encrypted = {"KmsMasterKeyId": key}
    hidden = {"VisibilityTimeout": str(VISIBILITY_SECONDS)}
    dead_letters = _queue(aws, LOST_REQUESTS, encrypted | hidden)
    redrive = {"deadLetterTargetArn": dead_letters, "maxReceiveCount": MAX_RECEIVES}
    return _queue(aws, REQUESTS, encrypted | hidden | {"RedrivePolicy": json.dumps(redrive)}), dead_letters


def _queue(aws: AwsServer, name: str, attributes: Mapping[str, str]) -> str:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName=name, Attributes=dict(attributes))["QueueUrl"]
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def _rule(aws: AwsServer, name: str, target: str, *, source: str, detail_type: str, detail: Mapping[str, Any]) -> str:
    pattern = {"source": [source], "detail-type": [detail_type], "detail": detail}
    events = aws.client("events")
    arn = str(events.put_rule(Name=name, EventPattern=json.dumps(pattern))["RuleArn"])
    events.put_targets(Rule=name, Targets=[{"Id": "target", "Arn": target}])
    return arn
