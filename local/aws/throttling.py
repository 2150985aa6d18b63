"""Requests to S3 and DynamoDB that are throttled on request: moto answers every one.

All patches replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import json
from typing import Any

from local.aws.faults import RequestPlan
from local.aws.replacements import replace

CODES = {"s3": ("SlowDown",), "dynamodb": ("ProvisionedThroughputExceededException", "ThrottlingException")}
"""Errors of a throttled request, by service (S3's with status 503, DynamoDB's with 400; API references)."""


def install(plan: RequestPlan) -> None:
    """Ask a plan about every request to S3 and DynamoDB.

    Args:
        plan: Answers with one of the service's `CODES`.
    """
    from moto.core.responses import BaseResponse
    from moto.s3.exceptions import S3ClientError
    from moto.s3.responses import S3Response

    answer, authorize = BaseResponse.call_action, S3Response._authenticate_and_authorize_s3_action
    serialize = S3Response.serialized

    class SlowDown(S3ClientError):  # type: ignore[misc]
        """An error that botocore's model of S3 does not list, so that moto would answer it with status 400."""

    def call_action(self: Any) -> Any:
        if self.service_name == "dynamodb" and (code := _code(plan, "dynamodb", self._get_action())):
            body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "Reduce your request rate."}
            return 400, {"status": "400", "content-type": "application/x-amz-json-1.0"}, json.dumps(body)
        return answer(self)

    def authorize_s3(self: Any, *arguments: Any, **named: Any) -> None:
        authorize(self, *arguments, **named)
        if code := _code(plan, "s3", self.data["Action"]):
            raise SlowDown(code, "Please reduce your request rate.")

    def serialized(self: Any, result: Any) -> Any:
        status, headers, body = serialize(self, result)
        return (503 if isinstance(result.result, SlowDown) else status), headers, body

    replace(BaseResponse, "call_action", call_action)
    replace(S3Response, "_authenticate_and_authorize_s3_action", authorize_s3)
    replace(S3Response, "serialized", serialized)


def _code(plan: RequestPlan, service: str, operation: str) -> str | None:
    code = plan(service, operation)
    if code is not None and code not in CODES[service]:
        raise ValueError(f"{service} does not throttle with {code}; use one of {', '.join(CODES[service])}.")
    return code
