"""A refused, hostile or huge request is answered, and never changes the answer to the next caller."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local.aws.request_limits import service_model
from local.aws.server import REGION, AwsServer

THREADS = 8
REQUESTS = 1_000
SERVICES = ("stepfunctions", "dynamodb", "events", "logs", "secretsmanager", "sqs", "ssm", "codebuild", "ecr", "kms")
"""Services that the product calls with JSON in the body; those of other forms are read by moto itself."""

FAULTS_OF_MOTO = ("ssm:DeletePatchBaseline",)
"""moto 5.2.5 does not expect the id of something that does not exist."""

DEEP = json.loads("[" * 200 + "]" * 200)
HOSTILE: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        10**30,
        1.5,
        "",
        " ",
        "x",
        "*",
        "../..",
        "arn:",
        "arn:aws:states:us-west-2:1:x:y",
        "\x00",
        "ä",
    ),
    *("9" * 5_000, "\ud800", [], {}, [None], [[]], {"": None}, {"S": {}}, DEEP, {"a": {"a": {"a": []}}}),
)
BODIES = (b"", b"no", b"[]", b"null", b"3", b'"x"', b"{", b'{"a"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5_000)


@pytest.fixture(scope="module")
def known(aws: AwsServer, role: str) -> Mapping[str, str]:
    """Things that friendly callers look at."""
    queue = aws.client("sqs").create_queue(QueueName="friendly")["QueueUrl"]
    aws.client("dynamodb").create_table(
        TableName="friendly",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    aws.client("dynamodb").put_item(TableName="friendly", Item={"k": {"S": "a"}, "n": {"N": "3"}})
    secret = aws.client("secretsmanager").create_secret(Name="friendly", SecretString="s")["ARN"]
    text = json.dumps({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}})
    machine = aws.client("stepfunctions").create_state_machine(name="friendly", definition=text, roleArn=role)
    return {"queue": queue, "secret": secret, "machine": machine["stateMachineArn"]}


def friendly(aws: AwsServer, known: Mapping[str, str]) -> list[Any]:
    """Answers that nothing may change."""
    calls: list[Callable[[], Any]] = [
        lambda: aws.client("dynamodb").get_item(TableName="friendly", Key={"k": {"S": "a"}})["Item"],
        lambda: aws.client("secretsmanager").get_secret_value(SecretId=known["secret"])["SecretString"],
        lambda: aws.client("stepfunctions").describe_state_machine(stateMachineArn=known["machine"])["definition"],
        lambda: aws.client("sqs").get_queue_attributes(QueueUrl=known["queue"], AttributeNames=["QueueArn"])[
            "Attributes"
        ],
        lambda: aws.client("sts").get_caller_identity()["Arn"],
    ]
    return [call() for call in calls]


def hostile_requests(seed: int) -> Iterator[tuple[str, str, bytes]]:
    """Service, operation and body of each request, always the same for a seed."""
    chance = random.Random(seed)
    for _ in range(REQUESTS // THREADS):
        service = chance.choice(SERVICES)
        model = service_model(service)
        operation = chance.choice([*model.operation_names, "NoSuchOperation"])
        shape = model.operation_model(operation).input_shape if operation in model.operation_names else None
        names = list(shape.members) if shape is not None else ["x"]
        fields = {name: chance.choice(HOSTILE) for name in names if chance.random() < 0.7}
        body = chance.choice(BODIES) if chance.random() < 0.2 else json.dumps(fields).encode()
        yield service, operation, body


def sent(aws: AwsServer, service: str, operation: str, body: bytes) -> tuple[int, str]:
    """Status and text of the answer to a request that the account's owner has signed."""
    model = service_model(service)
    headers = {
        "X-Amz-Target": f"{model.metadata['targetPrefix']}.{operation}",
        "Content-Type": f"application/x-amz-json-{model.metadata['jsonVersion']}",
        "Host": f"{model.endpoint_prefix}.{REGION}.amazonaws.com",
    }
    request = AWSRequest(method="POST", url=f"{aws.endpoint}/", data=body, headers=headers)
    SigV4Auth(Credentials(*aws.owner_credentials.values()), model.signing_name, REGION).add_auth(request)
    answer = requests.post(f"{aws.endpoint}/", data=body, headers=dict(request.headers), timeout=60)
    return answer.status_code, answer.text


def test_hostile_requests_are_answered_and_change_no_answer_to_others(aws: AwsServer, known: Mapping[str, str]) -> None:
    before = friendly(aws, known)

    def attack(seed: int) -> tuple[Counter[str], list[Any]]:
        faults: Counter[str] = Counter()
        for service, operation, body in hostile_requests(seed):
            status, text = sent(aws, service, operation, body)
            if status >= 500 and f"{service}:{operation}" not in FAULTS_OF_MOTO:
                faults[f"{service}:{operation} {body[:80]!r} {status} {text[-160:]}"] += 1
        return faults, friendly(aws, known)

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(attack, range(THREADS)))
    assert [after for _, after in results] == [before] * THREADS
    assert friendly(aws, known) == before
    assert sum((faults for faults, _ in results), Counter()) == Counter()
