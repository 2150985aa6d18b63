"""Errors in the form of each protocol, for requests that no service has read: botocore turns them into typed errors.

Source: Smithy, 'AWS protocols', and the 'Error responses' of the API references of Amazon S3 and Amazon EC2.
"""

from __future__ import annotations

import json
import re
import uuid
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

Answer = tuple[str, list[tuple[str, str]], str]
"""Status line, headers and body."""

S3 = "s3"
"""Beginning of the names of S3's services."""

NOT_OF_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that an XML document cannot hold (XML 1.0, 'Characters')."""


def request_protocol(environ: dict[str, Any], service: str) -> str:
    """Protocol of a request: `rest-xml`, `query`, `ec2` or `json`.

    Args:
        environ: The request, as WSGI describes it.
        service: The service in the request's signature; empty for a request without one.
    """
    if service.startswith(S3):
        return "rest-xml"
    if "HTTP_X_AMZ_TARGET" in environ:
        return "json"
    if "urlencoded" in environ.get("CONTENT_TYPE", "") or "Action" in parse_qs(environ.get("QUERY_STRING", "")):
        return "ec2" if service == "ec2" else "query"
    return "json" if service else "rest-xml"  # an address without a signature is an object of S3


def error_answer(protocol: str, status: int, code: str, message: str) -> Answer:
    """An error with a request id."""
    line, request = f"{status} {HTTPStatus(status).phrase}", str(uuid.uuid4())
    if protocol == "json":
        headers = [("Content-Type", "application/json"), ("x-amzn-errortype", code), ("x-amzn-requestid", request)]
        return line, headers, json.dumps({"__type": code, "message": message})
    error = f"<Code>{escape(code)}</Code><Message>{escape(NOT_OF_XML.sub('�', message))}</Message>"
    named = f"<RequestId>{request}</RequestId>"
    if protocol == "rest-xml":
        body = f"<Error>{error}{named}</Error>"
    elif protocol == "ec2":
        body = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request}</RequestID></Response>"
    else:
        side = "Sender" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "Receiver"
        body = f"<ErrorResponse><Error><Type>{side}</Type>{error}</Error>{named}</ErrorResponse>"
    return line, [("Content-Type", "application/xml"), ("x-amz-request-id", request)], body
