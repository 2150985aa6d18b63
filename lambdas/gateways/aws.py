"""Clients of AWS services, and AWS's errors as ours: what may pass is retried, the rest keeps its own name."""

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

PASSING = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "Throttled",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "ProvisionedThroughputExceededException",
        "SlowDown",
        "KMSThrottling",
        "ExecutionLimitExceeded",  # a million executions are open
        "ResourceInUseException",  # a node group is being resized: it takes one change at a time
    }
)
"""Error codes that ask to be tried again later."""


@lru_cache
def client(service: str, *, region: str | None = None, signed: bool = True) -> Any:
    """One client a service and warm Lambda: making one costs 50 to 100 ms.

    Args:
        service: As boto3 calls it.
        region: Another one than the function's own.
        signed: Whether requests carry credentials; public buckets answer those that do not.
    """
    config = None if signed else Config(signature_version=UNSIGNED)
    return boto3.client(service, region_name=region, config=config)  # type: ignore[call-overload]


@contextmanager
def translated(call: str) -> Iterator[None]:
    """Raise `ServiceUnavailable` for throttling and faults on the service's side.

    Args:
        call: `service:Operation`, as IAM names it, for the message.
    """
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in PASSING or status >= 500:
            raise ServiceUnavailable(f"{call} answered {code}.") from error
        raise
    except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
        raise ServiceUnavailable(f"{call} did not answer: {error}.") from error
