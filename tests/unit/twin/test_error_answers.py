"""Errors that the twin answers itself are typed errors to botocore, in the protocol of each service."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.parsers import create_parser

from local.aws.error_answers import error_answer, request_protocol
from local.aws.request_forms import parameter_error
from local.aws.request_limits import operation_model
from local.aws.unexpected import explained

PARSERS = {"rest-xml": "rest-xml", "query": "query", "ec2": "ec2", "json": "rest-json"}


@pytest.mark.parametrize("protocol", PARSERS)
def test_an_error_has_its_code_message_and_a_request_id_in_each_protocol(protocol: str) -> None:
    status, headers, body = error_answer(protocol, 500, "InternalFailure", "a < b & \x00")
    names = {name.lower(): value for name, value in headers}
    answer = {"status_code": 500, "headers": names, "body": body.encode()}
    parsed = create_parser(PARSERS[protocol]).parse(answer, None)
    assert status == "500 Internal Server Error"
    assert parsed["Error"]["Code"] == "InternalFailure"
    assert parsed["Error"]["Message"].startswith("a < b & ")
    metadata = parsed["ResponseMetadata"]
    assert metadata.get("RequestId") or metadata["HTTPHeaders"].get("x-amzn-requestid")


FORM = "application/x-www-form-urlencoded; charset=utf-8"


@pytest.mark.parametrize(
    ("environ", "service", "expected"),
    [
        ({}, "s3", "rest-xml"),
        ({"HTTP_X_AMZ_TARGET": "Logs_20140328.A"}, "logs", "json"),
        ({"CONTENT_TYPE": FORM}, "sns", "query"),
        ({"CONTENT_TYPE": FORM}, "", "query"),
        ({"CONTENT_TYPE": FORM}, "ec2", "ec2"),
        ({"QUERY_STRING": "Action=ListTopics"}, "sns", "query"),
        ({"CONTENT_TYPE": "application/json"}, "lambda", "json"),
        ({}, "", "rest-xml"),
    ],
)
def test_the_protocol_is_found_in_the_request(environ: dict[str, Any], service: str, expected: str) -> None:
    assert request_protocol(environ, service) == expected


@pytest.mark.parametrize(
    ("service", "operation", "given", "code", "words"),
    [
        ("iam", "GetRole", {}, "ValidationError", "Value null at 'roleName'"),
        ("iam", "GetRole", {"RoleName": "\x00"}, "ValidationError", "satisfy regular expression pattern"),
        ("iam", "GetRole", {"RoleName": "a" * 65}, "ValidationError", "length less than or equal to 64"),
        ("sts", "AssumeRole", {"RoleArn": "x", "RoleSessionName": "ab"}, "ValidationError", "at 'roleArn'"),
        ("cloudformation", "CreateStack", {"StackName": "a", "OnFailure": "b"}, "ValidationError", "'onFailure'"),
        ("sns", "DeleteTopic", {}, "ValidationError", "Value null at 'topicArn'"),
        ("sns", "DeleteTopic", {"TopicArn": "a:b"}, "InvalidParameter", "at least 6 elements, not 2"),
        ("sns", "Publish", {"Message": "a"}, "InvalidParameter", "no value for required parameter"),
        ("ec2", "DeleteVpc", {}, "MissingParameter", "VpcId"),
        ("lambda", "GetFunction", {"FunctionName": "a b"}, "ValidationException", "at 'functionName'"),
        ("lambda", "CreateFunction", {"FunctionName": "a", "Role": "x", "Code": {}}, "ValidationException", "'role'"),
        ("scheduler", "GetSchedule", {"Name": "{"}, "ValidationException", "at 'name'"),
        ("eks", "ListNodegroups", {"clusterName": "a", "maxResults": 101}, "InvalidParameterException", "100"),
    ],
)
def test_parameters_that_break_their_model_are_refused(
    service: str, operation: str, given: dict[str, Any], code: str, words: str
) -> None:
    model = operation_model(service, operation)
    assert model is not None
    found = parameter_error(service, model, given)
    assert found is not None
    assert found[0] == code
    assert words in found[1]


@pytest.mark.parametrize(
    ("service", "operation", "given"),
    [
        ("iam", "GetRole", {"RoleName": "a-role_1@x"}),
        ("sns", "DeleteTopic", {"TopicArn": "arn:aws:sns:us-west-2:123456789012:a"}),
        ("sns", "Publish", {"PhoneNumber": "+1", "Message": "a"}),
        ("lambda", "GetFunction", {"FunctionName": "arn:aws:lambda:us-west-2:123456789012:function:a:live"}),
        ("ec2", "DescribeVpcs", {}),
    ],
)
def test_parameters_that_keep_their_model_pass(service: str, operation: str, given: dict[str, Any]) -> None:
    model = operation_model(service, operation)
    assert model is not None
    assert parameter_error(service, model, given) is None


@pytest.mark.parametrize(
    ("service", "operation", "given", "error", "expected"),
    [
        ("eks", "ListNodegroups", {"clusterName": "a"}, KeyError("a"), (404, "ResourceNotFoundException")),
        (
            "ecr",
            "PutImage",
            {"repositoryName": "a"},
            Exception("a is not a repo"),
            (400, "RepositoryNotFoundException"),
        ),
        ("ec2", "DeleteVpc", {"VpcId": "a"}, KeyError("a"), (400, "InvalidVpcID.NotFound")),
        ("ssm", "ListDocuments", {"NextToken": "a"}, ValueError("int(): 'a'"), (400, "InvalidNextToken")),
        ("secretsmanager", "TagResource", {}, KeyError("Key"), (400, "InvalidParameterException")),
        ("eks", "ListNodegroups", {"clusterName": "a"}, KeyError("b"), None),
        ("eks", "ListNodegroups", {"clusterName": "a"}, ValueError("a"), None),
    ],
)
def test_a_missing_resource_and_an_unknown_token_are_errors_that_the_model_lists(
    service: str, operation: str, given: dict[str, Any], error: Exception, expected: tuple[int, str] | None
) -> None:
    model = operation_model(service, operation)
    assert model is not None
    found = explained(error, model, given)
    assert (found[:2] if found is not None else None) == expected
