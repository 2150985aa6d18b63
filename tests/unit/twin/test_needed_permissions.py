"""Requests and the permissions that they need, by the Service Authorization Reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from local.aws.access.needed_permissions import S3Request, deletion_permissions, request_permissions, s3_permissions

HERE = "us-west-2:123456789012"
KEY = f"arn:aws:kms:{HERE}:key/1"


class Encrypted:
    """An account in which one key encrypts everything."""

    account, region = "123456789012", "us-west-2"

    def table_key(self, table: str) -> str:
        return "run_id"

    def secret_arn(self, secret: str) -> str:
        return f"arn:aws:secretsmanager:{HERE}:secret:{secret}-AbCdEf"

    def key_of(self, arn: str) -> str | None:
        return KEY

    def key_arn(self, key: str) -> str:
        return f"arn:aws:kms:{HERE}:key/{key}"


def needs(service: str, operation: str, **parameters: Any) -> list[tuple[str, str]]:
    return [
        (permission.action, permission.resource)
        for permission in request_permissions(service, operation, parameters, Encrypted())
    ]


def needs_of_s3(
    action: str, method: str, key: str = "", *, query: Mapping[str, str] | None = None, **headers: str
) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = S3Request(action=action, method=method, bucket="b", key=key, query=query or {}, headers=named)
    return [
        (permission.action, permission.resource)
        for permission in s3_permissions(request, Encrypted(), object_key=lambda _bucket, _key: KEY)
    ]


TABLE = f"arn:aws:dynamodb:{HERE}:table/runs"


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "needed"),
    [
        ("sts", "GetCallerIdentity", {}, []),
        ("ec2", "DescribeSubnets", {}, [("ec2:DescribeSubnets", "*")]),
        ("dynamodb", "GetItem", {"TableName": "runs", "Key": {}}, [("dynamodb:GetItem", TABLE), ("kms:Decrypt", KEY)]),
        (
            "dynamodb",
            "TransactWriteItems",
            {
                "TransactItems": [
                    {"Put": {"TableName": "runs", "Item": {}}},
                    {"Delete": {"TableName": "runs", "Key": {}}},
                ]
            },
            [
                *(("dynamodb:PutItem", TABLE), ("kms:Decrypt", KEY)),
                *(("dynamodb:DeleteItem", TABLE), ("kms:Decrypt", KEY)),
            ],
        ),
        (
            "sns",
            "Publish",
            {"TopicArn": f"arn:aws:sns:{HERE}:t"},
            [("sns:Publish", f"arn:aws:sns:{HERE}:t"), ("kms:GenerateDataKey", KEY), ("kms:Decrypt", KEY)],
        ),
        (
            "sqs",
            "DeleteMessageBatch",
            {"QueueUrl": "http://localhost/123456789012/q"},
            [("sqs:DeleteMessage", f"arn:aws:sqs:{HERE}:q")],
        ),
        (
            "states",
            "StartExecution",
            {"stateMachineArn": f"arn:aws:states:{HERE}:stateMachine:m:7"},
            [("states:StartExecution", f"arn:aws:states:{HERE}:stateMachine:m")],
        ),
        (
            "states",
            "GetExecutionHistory",
            {"executionArn": f"arn:aws:states:{HERE}:execution:m:run"},
            [("states:GetExecutionHistory", f"arn:aws:states:{HERE}:execution:m:run"), ("kms:Decrypt", KEY)],
        ),
        (
            "states",
            "DescribeStateMachineForExecution",
            {"executionArn": f"arn:aws:states:{HERE}:execution:m:run"},
            [
                ("states:DescribeStateMachineForExecution", f"arn:aws:states:{HERE}:execution:m:run"),
                ("kms:Decrypt", KEY),
            ],
        ),
        (
            "states",
            "DescribeExecution",
            {"executionArn": f"arn:aws:states:{HERE}:execution:m:run"},
            [("states:DescribeExecution", f"arn:aws:states:{HERE}:execution:m:run"), ("kms:Decrypt", KEY)],
        ),
        (
            "states",
            "DescribeExecution",
            {"executionArn": f"arn:aws:states:{HERE}:execution:m:run", "includedData": "METADATA_ONLY"},
            [("states:DescribeExecution", f"arn:aws:states:{HERE}:execution:m:run")],
        ),
        (
            "lambda",
            "Invoke",
            {"FunctionName": "f", "Qualifier": "7"},
            [("lambda:InvokeFunction", f"arn:aws:lambda:{HERE}:function:f:7")],
        ),
        ("eks", "DescribeCluster", {"name": "c"}, [("eks:DescribeCluster", f"arn:aws:eks:{HERE}:cluster/c")]),
        (
            "secretsmanager",
            "GetSecretValue",
            {"SecretId": "s"},
            [
                ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{HERE}:secret:s-AbCdEf"),
                ("kms:Decrypt", KEY),
            ],
        ),
        (
            "fsx",
            "CreateDataRepositoryTask",
            {"FileSystemId": "fs-1"},
            [
                ("fsx:CreateDataRepositoryTask", f"arn:aws:fsx:{HERE}:file-system/fs-1"),
                ("fsx:CreateDataRepositoryTask", f"arn:aws:fsx:{HERE}:task/*"),
            ],
        ),
        ("fsx", "DescribeDataRepositoryTasks", {"TaskIds": ["task-1"]}, [("fsx:DescribeDataRepositoryTasks", "*")]),
    ],
)
def test_requests_need(service: str, operation: str, parameters: dict[str, Any], needed: list[tuple[str, str]]) -> None:
    assert needs(service, operation, **parameters) == needed


def test_condition_keys_come_from_the_parameters() -> None:
    (metric,) = request_permissions("cloudwatch", "PutMetricData", {"Namespace": "Trainflow"}, Encrypted())
    assert metric.context["cloudwatch:namespace"] == ("Trainflow",)
    put, decrypt = request_permissions(
        "dynamodb", "PutItem", {"TableName": "runs", "Item": {"run_id": {"S": "a"}}}, Encrypted()
    )
    assert put.context["dynamodb:leadingkeys"] == ("a",)
    assert decrypt.context["kms:viaservice"] == ("dynamodb.us-west-2.amazonaws.com",)
    entries = [{"Source": "a", "DetailType": "b"}, {"Source": "c", "DetailType": "d", "EventBusName": "bus"}]
    first, second = request_permissions("events", "PutEvents", {"Entries": entries}, Encrypted())
    assert (first.resource, first.context["events:source"]) == (f"arn:aws:events:{HERE}:event-bus/default", ("a",))
    assert (second.resource, second.context["events:detail-type"]) == (f"arn:aws:events:{HERE}:event-bus/bus", ("d",))


OBJECT = "arn:aws:s3:::b/k"


def test_heads_and_reads_of_objects_are_gets_and_reads_decrypt() -> None:
    assert needs_of_s3("GetObject", "HEAD", "k") == [("s3:GetObject", OBJECT)]
    with_checksum = needs_of_s3("GetObject", "HEAD", "k", x_amz_checksum_mode="ENABLED")
    assert with_checksum == [("s3:GetObject", OBJECT), ("kms:Decrypt", KEY)]
    assert needs_of_s3("GetObject", "GET", "k") == [("s3:GetObject", OBJECT), ("kms:Decrypt", KEY)]


def test_writes_need_a_data_key_and_parts_also_decrypt() -> None:
    data_key = ("kms:GenerateDataKey", KEY)
    assert needs_of_s3("PutObject", "PUT", "k") == [("s3:PutObject", OBJECT), data_key]
    parts = needs_of_s3("PutObject", "POST", "k", query={"uploads": ""})
    assert parts == [("s3:PutObject", OBJECT), data_key, ("kms:Decrypt", KEY)]
    with_key = {"x_amz_server_side_encryption_aws_kms_key_id": "2"}
    assert needs_of_s3("PutObject", "PUT", "k", **with_key)[1] == ("kms:GenerateDataKey", f"arn:aws:kms:{HERE}:key/2")


def test_a_copy_reads_its_source() -> None:
    copied = needs_of_s3("PutObject", "PUT", "k", x_amz_copy_source="/from/a/b?versionId=1")
    assert copied[2:] == [("s3:GetObject", "arn:aws:s3:::from/a/b"), ("kms:Decrypt", KEY)]


def test_listings_carry_their_prefix_and_deletions_name_each_object() -> None:
    request = S3Request(action="ListBucket", method="GET", bucket="b", query={"prefix": "data/"})
    (listing,) = s3_permissions(request, Encrypted(), object_key=lambda _bucket, _key: None)
    assert (listing.action, listing.context["s3:prefix"]) == ("s3:ListBucket", ("data/",))
    assert [permission.resource for permission in deletion_permissions("b", ["x", "y"])] == [
        "arn:aws:s3:::b/x",
        "arn:aws:s3:::b/y",
    ]


def test_the_encryption_of_a_bucket_has_actions_of_its_own() -> None:
    """moto takes the requests for `ListBucket` and `CreateBucket`."""
    query, bucket = {"encryption": ""}, "arn:aws:s3:::b"
    assert needs_of_s3("ListBucket", "GET", query=query) == [("s3:GetEncryptionConfiguration", bucket)]
    assert needs_of_s3("CreateBucket", "PUT", query=query) == [("s3:PutEncryptionConfiguration", bucket)]
