"""Refuses requests of strangers at the twin's endpoint before moto reads them.

Every user of the machine reaches the loopback interface, and so does every web page in a browser. A signature with
credentials that the twin has given out is asked of each request, but for reading public objects of S3. moto would
answer web pages of any origin, and its own interface, `/moto-api`, shows and resets everything without credentials.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

from local.aws.access.chunks import are_chunks_signed
from local.aws.access.guard import Guard
from local.aws.access.signatures import (
    CONTENT_HASH,
    Signature,
    header_of,
    is_genuine,
    is_hash_known,
    other_body,
    signature_of,
)
from local.aws.error_answers import Answer, error_answer, request_protocol
from local.aws.replacements import replace

MISSING = "MissingAuthenticationToken"
OLD_SIGNATURE = "InvalidRequest"
"""S3's error for a request with version 2 of the signature, which buckets since 2020 do not accept."""
FORGED, INVALID = "SignatureDoesNotMatch", "InvalidSignatureException"
NOT_THAT = (
    "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method."
)


# Decision 61: every user and every web page of the machine reaches the loopback interface.
def install(guard: Guard) -> None:
    """Refuse strangers while a server of the twin runs."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    answer = DomainDispatcherApplication.__call__

    def call(self: Any, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        signature = signature_of(environ)
        code = refusal(environ, is_signed=signature is not None)
        if code is None and signature is not None:
            secret = guard.secret_of(signature.key)
            refused = _refused(environ, signature, secret) if secret is not None else None
            if refused is not None:
                status, headers, body = refused
                start_response(status, headers)
                return [body.encode()]
        if code is None:
            found: Iterable[bytes] = answer(self, environ, start_response)
            return found
        protocol = request_protocol(environ, signature.service if signature is not None else "")
        said = "This endpoint answers the clients of one user's twin."
        status, headers, body = error_answer(protocol, HTTPStatus.FORBIDDEN, code, said)
        start_response(status, headers)
        return [body.encode()]

    replace(DomainDispatcherApplication, "__call__", call)


def refusal(environ: dict[str, Any], *, is_signed: bool) -> str | None:
    """The error of a request that is not to be answered, whatever its signature is; None for others.

    Args:
        environ: The request, as WSGI describes it.
        is_signed: Whether it names an access key, known or not: an unknown one is refused in the service's own words.
    """
    path = environ.get("PATH_INFO", "/")
    if "HTTP_ORIGIN" in environ or path.startswith("/moto-api"):
        return "AccessDenied"
    if is_signed:
        return None
    reads = environ.get("REQUEST_METHOD") in ("GET", "HEAD") and path.strip("/")
    names_service = "HTTP_X_AMZ_TARGET" in environ or "Action" in parse_qs(environ.get("QUERY_STRING", ""))
    if not reads or names_service or "HTTP_AUTHORIZATION" in environ:
        return MISSING
    # moto takes every address with this word for one that was presigned, and asks for nothing else.
    return OLD_SIGNATURE if "Signature=" in unquote(environ.get("RAW_URI", "")) else None


def _refused(environ: dict[str, Any], signature: Signature, secret: str) -> Answer | None:
    """The answer to a request that the owner of a secret has not made as it is; None for others."""
    if not is_genuine(environ, signature, secret):
        return refused_signature(environ, signature)
    if not is_hash_known(environ, signature):
        return refused_hash(environ)
    other = other_body(environ, signature)
    if other is not None:
        return refused_body(environ, other)
    return None if are_chunks_signed(environ, signature, secret) else refused_signature(environ, signature)


def refused_signature(environ: dict[str, Any], signature: Signature) -> Answer:
    """The answer to a signature that is not that of the key's secret, in the protocol of the request (IAM user guide,
    'Troubleshoot Signature Version 4 signing')."""
    protocol = request_protocol(environ, signature.service)
    status = HTTPStatus.BAD_REQUEST if "HTTP_X_AMZ_TARGET" in environ else HTTPStatus.FORBIDDEN
    return error_answer(protocol, status, INVALID if protocol == "json" else FORGED, NOT_THAT)


def refused_hash(environ: dict[str, Any]) -> Answer:
    """The answer to what is neither a hash nor a word for a body without one (S3 API reference, 'Error responses')."""
    error = (
        f"<Error><Code>InvalidArgument</Code><Message>{CONTENT_HASH} must be UNSIGNED-PAYLOAD, "
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.</Message>"
        f"<ArgumentName>{CONTENT_HASH}</ArgumentName>"
        f"<ArgumentValue>{escape(header_of(environ, CONTENT_HASH))}</ArgumentValue></Error>"
    )
    return "400 Bad Request", [("Content-Type", "application/xml")], error


def refused_body(environ: dict[str, Any], found: str) -> Answer:
    """The answer to a body that is not the one whose hash was signed (S3 API reference, 'Error responses').

    Args:
        environ: The request, as WSGI describes it.
        found: SHA-256 of its body.
    """
    error = (
        "<Error><Code>XAmzContentSHA256Mismatch</Code>"
        "<Message>The provided 'x-amz-content-sha256' header does not match what was computed.</Message>"
        f"<ClientComputedContentSHA256>{header_of(environ, CONTENT_HASH)}</ClientComputedContentSHA256>"
        f"<S3ComputedContentSHA256>{found}</S3ComputedContentSHA256></Error>"
    )
    return "400 Bad Request", [("Content-Type", "application/xml")], error
