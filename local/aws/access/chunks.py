"""Checks the signatures of uploads to S3 whose chunks are signed one by one; moto removes them and checks nothing.

Source: S3 API reference, 'Signature calculations for the Authorization header: transferring payload in multiple chunks'
and '… including trailing headers'. The text is read more strictly than moto reads it, so that both see the same chunks.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any

from local.aws.access.signatures import (
    CONTENT_HASH,
    S3,
    SIGNED_CHUNKS,
    Signature,
    body_of,
    header_of,
    part_signature,
)

LENGTH = "x-amz-decoded-content-length"
"""Header with the number of bytes of all chunks together."""
CHUNK, TRAILER = "AWS4-HMAC-SHA256-PAYLOAD", "AWS4-HMAC-SHA256-TRAILER"
NO_HEADERS = hashlib.sha256().hexdigest()
"""Hash of a chunk's own headers, which are always empty."""

_BEGINNING = re.compile(rb"(?P<size>[0-9a-fA-F]{1,16});chunk-signature=(?P<signature>[0-9a-f]{64})\r\n")
_ENDING = re.compile(
    rb"(?:\r\n)?(?P<headers>(?:[a-zA-Z0-9-]+:[ -~]*\r?\n)+?)(?:\r\n)?"
    rb"x-amz-trailer-signature:(?P<signature>[0-9a-f]{64})(?:\r\n){1,2}"
)
"""Clients differ in where they put empty lines."""


def are_chunks_signed(environ: dict[str, Any], signature: Signature, secret: str) -> bool:
    """Whether the owner of a secret key has signed each chunk of an upload; True for other requests.

    Args:
        environ: The request, as WSGI describes it. Its body is read, and put back.
        signature: Of the request, which is genuine.
        secret: Secret key of the access key that the signature names.
    """
    form = header_of(environ, CONTENT_HASH)
    if not signature.service.startswith(S3) or form not in SIGNED_CHUNKS:
        return True
    body = body_of(environ)
    previous, position, received, size = signature.value, 0, 0, -1
    while size and (beginning := _BEGINNING.match(body, position)):
        size = int(beginning["size"], 16)
        end = beginning.end() + size
        digest = hashlib.sha256(memoryview(body)[beginning.end() : end]).hexdigest()
        previous = part_signature(signature, secret, CHUNK, previous, NO_HEADERS, digest)
        if not _is(beginning, previous) or (size and body[end : end + 2] != b"\r\n"):
            return False
        received, position = received + size, end + 2 if size else end
    if size or header_of(environ, LENGTH) != str(received):
        return False
    rest = body[position:]
    return _is_trailer_signed(rest, previous, signature, secret) if form.endswith("-TRAILER") else rest == b"\r\n"


def _is_trailer_signed(rest: bytes, previous: str, signature: Signature, secret: str) -> bool:
    """Whether what follows the last chunk is signed headers and nothing else."""
    ending = _ENDING.fullmatch(rest)
    if ending is None:
        return False
    headers = [line.partition(":") for line in ending["headers"].decode().splitlines()]
    canonical = "".join(f"{name.lower()}:{value.strip()}\n" for name, _, value in sorted(headers))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return _is(ending, part_signature(signature, secret, TRAILER, previous, digest))


def _is(found: re.Match[bytes], expected: str) -> bool:
    return hmac.compare_digest(found["signature"], expected.encode())
