"""Clients of AWS services, and the translation of AWS's errors: transient ones are retried, others keep their names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, IncompleteReadError

from trainflow.errors import ServiceUnavailable

TRANSIENT = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "Throttled",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "ProvisionedThroughputExceededException",
        "SlowDown",
        "KMSThrottling",
        "KmsThrottlingException",  # Step Functions, whose executions are encrypted
        "ExecutionLimitExceeded",  # a million executions are open
        "ResourceInUseException",  # a node group is being resized: it takes one change at a time
    }
)
"""Codes of transient errors: the same call may succeed later."""


@lru_cache
def client(service: str, *, region: str | None = None, signed: bool = True) -> Any:
    """The client of a service. Each warm Lambda makes one per service, because making one takes 50 to 100 ms.

    Args:
        service: Name of the service in boto3.
        region: Region of the service; the function's own if left out.
        signed: Whether requests carry credentials; public buckets also answer unsigned requests.
    """
    config = None if signed else Config(signature_version=UNSIGNED)
    return boto3.client(service, region_name=region, config=config)  # type: ignore[call-overload]


@contextmanager
def translated(call: str) -> Iterator[None]:
    """Context that raises `ServiceUnavailable` for throttling and faults of the service.

    Args:
        call: `service:Operation`, as IAM names it, for the message.
    """
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in TRANSIENT or status >= 500:
            raise ServiceUnavailable(f"{call} answered {code}.") from error
        raise
    except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
        raise ServiceUnavailable(f"{call} did not answer: {error}.") from error
