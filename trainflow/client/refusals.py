"""Sentences for what AWS refuses to the caller of the client."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from trainflow.client.place import PlaceRefused

_P = ParamSpec("_P")
_R = TypeVar("_R")

ACTIONS = {
    "DescribeExecution": "states:DescribeExecution",
    "DescribeStateMachineForExecution": "states:DescribeStateMachineForExecution",
    "GetExecutionHistory": "states:GetExecutionHistory",
    "ListExecutions": "states:ListExecutions",
    "StartExecution": "states:StartExecution",
    "StopExecution": "states:StopExecution",
    "GetParameter": "ssm:GetParameter",
    "GetParametersByPath": "ssm:GetParametersByPath",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "PutObject": "s3:PutObject",
    "ListObjectsV2": "s3:ListBucket",
    "DescribeCluster": "eks:DescribeCluster",
    "Invoke": "lambda:InvokeFunction",
    "FilterLogEvents": "logs:FilterLogEvents",
    "GetMetricData": "cloudwatch:GetMetricData",
    "GetMetricStatistics": "cloudwatch:GetMetricStatistics",
    "ListMetrics": "cloudwatch:ListMetrics",
    "DescribeSpotPriceHistory": "ec2:DescribeSpotPriceHistory",
}
"""The IAM action of each operation that the client calls (Service Authorization Reference)."""

DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "403", "Forbidden"}
)
"""Codes of the services for a caller who lacks a permission; S3 answers HEAD with only the status."""

KEY_DENIED = frozenset({"KmsAccessDeniedException"})
"""Codes for a caller who may not use the KMS key behind what is asked for: those of Step Functions and CloudWatch (API
references, 'Errors'). S3 and DynamoDB use the codes of every refusal. Lambda's `KMSAccessDeniedException` is about the
role of the function."""

READS_OBJECTS = frozenset({"GetObject", "HeadObject"})
"""Operations of S3 that also need the key of an encrypted object. S3 reports a missing object only to those who may
list the bucket (S3 API reference, 'Permissions')."""

OR_OF_OBJECTS = ", or kms:Decrypt on the object's key, or s3:ListBucket if there is no such object"
"""Further permissions that may be missing, for answers of S3 that do not name an action."""

EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
"""Codes for credentials that were valid once."""

UNKNOWN_KEY = frozenset({"AuthFailure", "InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException"})
"""Codes for credentials that AWS does not know."""

_NAMED_ACTION = re.compile(r"not authorized to perform: (?P<action>[a-z0-9-]+:[A-Za-z]+)")
"""Text of services about the missing permission (IAM user guide, 'Troubleshoot access denied error messages'). S3 names
`kms:Decrypt` in this way if it may read an object and not its key."""

_NAMED_KEY = re.compile(r"KMS key access denied|customer master key")
"""Texts of DynamoDB and KMS that do not name the action."""


def told(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a method raise `PlaceRefused` with one sentence where boto3 raises its own errors."""

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except (BotoCoreError, ClientError) as error:
            raise PlaceRefused(sentence_of(error)) from None

    return call


def is_refusal(error: BotoCoreError | ClientError) -> bool:
    """Whether the caller lacks a permission, or is not known: the same request will not be answered later either."""
    if isinstance(error, NoCredentialsError):
        return True
    return isinstance(error, ClientError) and _code(error) in DENIED | KEY_DENIED | EXPIRED | UNKNOWN_KEY


def sentence_of(error: BotoCoreError | ClientError) -> str:
    """AWS's message, and the action that was refused."""
    if not isinstance(error, ClientError):
        return f"AWS cannot be asked: {_one_line(str(error))}."
    said = error.response.get("Error", {})
    code, operation = _code(error), error.operation_name
    if code in DENIED | KEY_DENIED:
        message = _one_line(said.get("Message", code))
        return f"These credentials may not call {_refused_action(code, operation, message)}: {message}."
    if code in EXPIRED | UNKNOWN_KEY:
        return f"AWS does not accept these credentials ({code}); log in again."
    return f"{operation} answered {code}: {_one_line(said.get('Message', ''))}."


def _refused_action(code: str, operation: str, message: str) -> str:
    """The action that is missing: the one that the service names, and otherwise what the operation needs."""
    if named := _NAMED_ACTION.search(message):
        return named["action"]
    action = ACTIONS.get(operation, operation)
    if code in KEY_DENIED or _NAMED_KEY.search(message):
        return f"kms:Decrypt on the key behind {action}"
    return f"{action}{OR_OF_OBJECTS}" if operation in READS_OBJECTS else action


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "an error"))


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().rstrip(".")
