"""Requests whose parameters are made from the models of every service never change the answer to the next caller.

`test_hostile_requests.py` sends bodies of other forms to the services that read JSON. Here botocore serializes: XML,
queries, CBOR and paths, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import OperationModel
from botocore.parsers import ResponseParserError

from local.aws.deployment import create_bucket
from local.aws.request_limits import service_model
from local.aws.server import REGION, AwsServer

THREADS = 8
REQUESTS = 1_000
SERVICES = (
    *("s3", "cloudwatch", "sns", "lambda", "scheduler", "iam", "sts", "eks", "cloudformation", "ec2", "pipes"),
    *("stepfunctions", "events", "sqs", "dynamodb", "logs", "ssm", "secretsmanager", "kms", "ecr", "service-quotas"),
)
TEXTS = ("x", "", " ", "*", "../..", "a" * 3_000, "ä", "\x00", "arn:", "arn:aws:s3:::x", "{", "[]", "null", "-1", "x-1")
NUMBERS = (0, 1, -1, 7, 2**31, 10**18)
PATIENCE = Config(
    parameter_validation=False,
    retries={"total_max_attempts": 1},
    read_timeout=30,
    inject_host_prefix=False,
    max_pool_connections=1,
)
ENDPOINTS_OF_ITS_OWN = {"s3:CreateSession", "s3:ListDirectoryBuckets", "s3:WriteGetObjectResponse"}
"""Operations for which botocore asks another host than the one that is given."""

MOST_UNEXPECTED = 8
"""Requests that end with an exception of Python in moto 5.2.5, which the twin answers with InternalFailure, such as
change sets without a stack and statements that are not PartiQL: 4 of 997 at present. The number may only fall."""


def made(shape: Any, chance: random.Random, depth: int = 0) -> Any:
    """A value of a shape; now and then one beyond its limits."""
    kind = shape.type_name
    if kind == "structure":
        required = set(shape.required_members)
        chosen = (name for name in shape.members if name in required or chance.random() < 0.25 / (depth + 1))
        return {name: made(shape.members[name], chance, depth + 1) for name in chosen} if depth < 6 else {}
    if kind == "list":
        return [made(shape.member, chance, depth + 1) for _ in range(chance.choice((0, 1, 2)))] if depth < 6 else []
    if kind == "map":
        return {chance.choice(("x", "y", "a b")): made(shape.value, chance, depth + 1)} if depth < 6 else {}
    if kind == "string":
        return chance.choice(shape.enum) if shape.enum and chance.random() < 0.7 else chance.choice(TEXTS)
    values: Mapping[str, Any] = {
        "boolean": chance.random() < 0.5,
        "timestamp": datetime.fromtimestamp(chance.choice((0, 1_795_849_200, 4_102_444_800)), UTC),
        "blob": chance.choice((b"", b"x", b"\x00\xff", b"{", b"x" * 100_000)),
    }
    return values.get(kind, chance.choice(NUMBERS))


@cache
def operations(service: str) -> list[OperationModel]:
    model = service_model(service)
    return [model.operation_model(name) for name in model.operation_names]


def requests_of(seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Service, operation and parameters of each request, always the same for a seed."""
    chance = random.Random(seed)
    for _ in range(REQUESTS // THREADS):
        service = chance.choice(SERVICES)
        operation = chance.choice(operations(service))
        shape = operation.input_shape
        parameters = made(shape, chance) if shape is not None else {}
        if f"{service}:{operation.name}" not in ENDPOINTS_OF_ITS_OWN:
            yield service, operation.name, parameters


@pytest.fixture(scope="module")
def probes(aws: AwsServer, role: str) -> Callable[[], dict[str, Any]]:
    """Returns the answers to a fixed set of requests of a friendly caller."""
    client = aws.client
    create_bucket(aws, "friendly")
    client("s3").put_object(Bucket="friendly", Key="key", Body=b"text")
    topic = client("sns").create_topic(Name="friendly")["TopicArn"]
    queue = client("sqs").create_queue(QueueName="friendly")["QueueUrl"]
    client("events").put_rule(Name="friendly", EventPattern='{"source": ["friendly"]}')
    client("logs").create_log_group(logGroupName="friendly")
    client("ssm").put_parameter(Name="/friendly", Value="text", Type="String")
    secret = client("secretsmanager").create_secret(Name="friendly", SecretString="text")["ARN"]
    text = '{"StartAt": "A", "States": {"A": {"Type": "Pass", "Parameters": {"x.$": "$.x"}, "End": true}}}'
    machine = client("stepfunctions").create_state_machine(name="friendly", definition=text, roleArn=role)
    client("dynamodb").create_table(
        TableName="friendly",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client("dynamodb").put_item(TableName="friendly", Item={"k": {"S": "a"}})
    now = datetime.now(UTC).replace(microsecond=0)
    client("cloudwatch").put_metric_data(
        Namespace="Friendly", MetricData=[{"MetricName": "M", "Value": 3.0, "Timestamp": now}]
    )
    arn = machine["stateMachineArn"]
    calls: dict[str, Callable[[], Any]] = {
        "s3": lambda: client("s3").get_object(Bucket="friendly", Key="key")["Body"].read(),
        "s3 lists": lambda: [each["Key"] for each in client("s3").list_objects_v2(Bucket="friendly")["Contents"]],
        "sns": lambda: client("sns").get_topic_attributes(TopicArn=topic)["Attributes"],
        "sqs": lambda: client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"],
        "events": lambda: client("events").describe_rule(Name="friendly")["EventPattern"],
        "events match": lambda: client("events").test_event_pattern(EventPattern='{"a": ["b"]}', Event=EVENT)["Result"],
        "logs": lambda: client("logs").filter_log_events(logGroupName="friendly")["events"],
        "ssm": lambda: client("ssm").get_parameter(Name="/friendly")["Parameter"]["Value"],
        "secretsmanager": lambda: client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"],
        "states": lambda: client("stepfunctions").describe_state_machine(stateMachineArn=arn)["definition"],
        "states create": lambda: client("stepfunctions").create_state_machine(
            name="friendly", definition=text, roleArn=role
        )["stateMachineArn"],
        "states refuses": lambda: _code(lambda: client("stepfunctions").start_execution(stateMachineArn=f"{arn}x")),
        "dynamodb": lambda: client("dynamodb").get_item(TableName="friendly", Key={"k": {"S": "a"}})["Item"],
        "cloudwatch": lambda: client("cloudwatch").get_metric_statistics(
            Namespace="Friendly", MetricName="M", StartTime=now, EndTime=now.replace(year=now.year + 1),
            Period=86_400, Statistics=["Maximum"],
        )["Datapoints"][0]["Maximum"],
        "iam": lambda: client("iam").get_role(RoleName="test")["Role"]["AssumeRolePolicyDocument"],
        "sts": lambda: client("sts").get_caller_identity()["Arn"],
        "ec2": lambda: len(client("ec2").describe_availability_zones()["AvailabilityZones"]),
        "lambda refuses": lambda: _code(lambda: client("lambda").invoke(FunctionName="friendly")),
    }  # fmt: skip
    return lambda: {name: _answer(call) for name, call in calls.items()}


EVENT = (
    '{"id": "1", "account": "123456789012", "source": "s", "time": "2026-01-01T00:00:00Z", "region": "us-west-2", '
    '"detail-type": "d", "resources": [], "detail": {}, "a": "b"}'
)


def _answer(call: Callable[[], Any]) -> Any:
    """The answer, or the error that botocore raises: the comparison then names the probe."""
    try:
        return call()
    except (BotoCoreError, ClientError) as error:
        return repr(error)[:300]


def _code(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as refused:
        call()
    return str(refused.value.response["Error"]["Code"])


def test_parameters_of_any_service_change_no_answer_to_others(
    aws: AwsServer, probes: Callable[[], dict[str, Any]]
) -> None:
    before = probes()
    key, secret = aws.owner_credentials.values()

    def attack(seed: int) -> tuple[Counter[str], Counter[str], dict[str, Any]]:
        session: Any = boto3.Session(aws_access_key_id=key, aws_secret_access_key=secret, region_name=REGION)
        clients: dict[str, Any] = {}
        unanswered: Counter[str] = Counter()
        pages: Counter[str] = Counter()

        def note_page(response_dict: Any, **_: Any) -> None:
            body = response_dict["body"] if response_dict and response_dict["status_code"] >= 300 else b""
            pages.update([str(body)[:80]] if b"<html" in body.lower() else [])

        for service, operation, parameters in requests_of(seed):
            if service not in clients:
                clients[service] = session.client(service, endpoint_url=aws.endpoint, config=PATIENCE)
                clients[service].meta.events.register("response-received", note_page)
            try:
                clients[service]._make_api_call(operation, parameters)
            except ClientError as error:
                status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
                unanswered.update([f"{service}:{operation}"] if status >= 500 else [])
                code = error.response["Error"]["Code"]
                is_bare = (not code or code.isdigit()) and not operation.startswith("Head")  # those have no body
                pages.update([f"{service}:{operation} {code}"] if is_bare else [])
            except ResponseParserError:
                pages[f"{service}:{operation}"] += 1
            except (BotoCoreError, ValueError, TypeError, AttributeError, KeyError):
                pass  # botocore cannot serialize the request
        return unanswered, pages, probes()

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(attack, range(THREADS)))
    assert [after for *_, after in results] == [before] * THREADS
    assert probes() == before
    assert sum((pages for _, pages, _ in results), Counter()) == Counter(), "every error has a code"
    unexpected = sum((counted for counted, *_ in results), Counter())
    assert unexpected.total() <= MOST_UNEXPECTED, unexpected
