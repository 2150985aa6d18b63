"""Checks AWS Signature Version 4 of requests at the twin's endpoint; moto reads the access key's id and checks nothing.

Source: IAM user guide, 'Create a signed AWS API request' and 'Elements of an AWS API request signature'. botocore knows
the canonical forms; what differs here is that the signed headers are those that the request names.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

ALGORITHM = "AWS4-HMAC-SHA256"
TIME = "%Y%m%dT%H%M%SZ"
SKEW = timedelta(minutes=15)
"""Greatest error of a client's clock; also the longest time that a signed request may be under way."""
LONGEST = timedelta(days=7)
"""Longest validity of a presigned request."""
S3 = "s3"
"""Beginning of the names of S3's services, which do not encode a path again, and take a body's hash from a header."""
CONTENT_HASH = "x-amz-content-sha256"
UNSIGNED, UNSIGNED_WITH_TRAILER = "UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
SIGNED_CHUNKS = ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
"""In place of a body's hash: nothing is signed of it, or each of its chunks."""

_FIELD = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")
_SIGNATURE_IN_QUERY = re.compile(r"(^|&)X-Amz-Signature=[^&]*")
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_SCOPE = re.compile(r"(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The signature of a request, and the parts that it covers."""

    key: str
    """Id of the access key."""
    date: str
    region: str
    service: str
    names: tuple[str, ...]
    """Signed headers, in lower case."""
    value: str
    time: str
    seconds: float | None
    """Validity of a presigned request; None for others."""

    def is_current(self, now: datetime) -> bool:
        """Whether the request was signed about now, or is presigned for as long as this."""
        try:
            signed_at = datetime.strptime(self.time, TIME).replace(tzinfo=UTC)
        except ValueError:
            return False
        valid = SKEW if self.seconds is None else timedelta(seconds=self.seconds)
        return self.time.startswith(self.date) and signed_at - SKEW <= now <= signed_at + valid


# Decisions 62 and 71: signatures and body hashes are verified, since other users reach the port.
def signature_of(environ: dict[str, Any]) -> Signature | None:
    """The signature in the header or the query of a request; None if it is missing or incomplete.

    Args:
        environ: The request, as WSGI describes it.
    """
    header = environ.get("HTTP_AUTHORIZATION")
    seconds: float | None = None
    if header:
        fields = dict(_FIELD.findall(header)) if header.startswith(f"{ALGORITHM} ") else {}
        time = environ.get("HTTP_X_AMZ_DATE", "")
    else:
        query = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        fields = {name: query.get(f"X-Amz-{name}", "") for name in ("Credential", "SignedHeaders", "Signature")}
        time = query.get("X-Amz-Date", "")
        seconds = _valid_seconds(query.get("X-Amz-Expires", ""), at_least=SKEW if query.get("Action") else None)
    scope = _SCOPE.fullmatch(fields.get("Credential", ""))
    if scope is None or not fields.get("SignedHeaders") or not fields.get("Signature"):
        return None
    names = tuple(fields["SignedHeaders"].lower().split(";"))
    return Signature(**scope.groupdict(), names=names, value=fields["Signature"], time=time, seconds=seconds)


def _valid_seconds(expires: str, *, at_least: timedelta | None) -> float:
    """Validity of a presigned request as it states itself; 0 for a value that no service takes.

    STS's tokens for EKS state a minute, and EKS takes them for a quarter of an hour.
    """
    if not re.fullmatch(r"[0-9]{1,6}", expires) or int(expires) > LONGEST.total_seconds():
        return 0.0
    return max(float(expires), at_least.total_seconds() if at_least else 0.0)


def is_genuine(environ: dict[str, Any], signature: Signature, secret: str, *, now: datetime | None = None) -> bool:
    """Whether the owner of a secret key has signed this request, and not long ago.

    Args:
        environ: The request, as WSGI describes it. Its body is read, and put back, unless the request names the hash
            of its own body, as those to S3 do: `other_body` compares that.
        signature: Of the request.
        secret: Secret key of the access key that the signature names.
        now: Time of the check; the clock's if left out.
    """
    if not signature.is_current(now or datetime.now(UTC)) or "host" not in signature.names:
        return False
    expected = _value(environ, signature, secret)
    return hmac.compare_digest(expected.encode(), signature.value.encode())


def other_body(environ: dict[str, Any], signature: Signature) -> str | None:
    """SHA-256 of the body of a request to S3, if the request names another; None if it names this one, or none.

    Uploads in signed chunks name none of the whole body: `local.aws.access.chunks` verifies their chunks.

    Args:
        environ: The request, as WSGI describes it. Its body is read, and put back.
        signature: Of the request.
    """
    named = header_of(environ, CONTENT_HASH)
    if not signature.service.startswith(S3) or not _HASH.fullmatch(named):
        return None
    found = hashlib.sha256(body_of(environ)).hexdigest()
    return found if found != named.lower() else None


def is_hash_known(environ: dict[str, Any], signature: Signature) -> bool:
    """Whether a request to S3 names, for its body's hash, a hash or one of the words that S3 takes.

    Those for signatures with an elliptic curve are left out: they belong to another algorithm of the whole request.

    Args:
        environ: The request, as WSGI describes it.
        signature: Of the request.
    """
    named = header_of(environ, CONTENT_HASH)
    words = ("", UNSIGNED, UNSIGNED_WITH_TRAILER, *SIGNED_CHUNKS)
    return not signature.service.startswith(S3) or named in words or _HASH.fullmatch(named) is not None


def _value(environ: dict[str, Any], signature: Signature, secret: str) -> str:
    path, _, query = str(environ.get("RAW_URI") or environ["PATH_INFO"]).partition("?")
    query = _SIGNATURE_IN_QUERY.sub("", query).removeprefix("&")
    headers = {name: header_of(environ, name) for name in signature.names}
    is_s3 = signature.service.startswith(S3)
    if is_s3:
        headers[CONTENT_HASH] = header_of(environ, CONTENT_HASH) or UNSIGNED  # a presigned request has none
    request = AWSRequest(
        method=environ["REQUEST_METHOD"],
        url=f"http://twin/{path.removeprefix('/')}" + (f"?{query}" if query else ""),
        headers=headers,
        data=None if is_s3 else body_of(environ),
    )
    request.context["timestamp"] = signature.time
    auth = _Signer(signature, secret)
    return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))


def part_signature(signature: Signature, secret: str, kind: str, *lines: str) -> str:
    """Signature of a part of a body that is signed part by part.

    Args:
        signature: Of the request.
        secret: Secret key of the access key that the signature names.
        kind: First line of the text that is signed; the request's time and scope follow.
        lines: The lines after them.
    """
    request = AWSRequest()
    request.context["timestamp"] = signature.time
    auth = _Signer(signature, secret)
    return str(auth.signature("\n".join([kind, signature.time, auth.credential_scope(request), *lines]), request))


class _Signer(SigV4Auth):
    """Signs the headers that a request names: no fewer, as botocore would, and no more."""

    def __init__(self, signature: Signature, secret: str) -> None:
        super().__init__(Credentials(signature.key, secret), signature.service, signature.region)
        self._names, self._is_s3 = signature.names, signature.service.startswith(S3)

    def headers_to_sign(self, request: AWSRequest) -> HTTPHeaders:
        signed = HTTPHeaders()
        for name in self._names:
            signed[name] = request.headers[name]
        return signed

    def _normalize_url_path(self, path: str) -> str:
        return path if self._is_s3 else str(super()._normalize_url_path(path))  # type: ignore[misc]


def header_of(environ: dict[str, Any], name: str) -> str:
    """A header's value; HTTP's text is bytes, and WSGI shows them as Latin-1."""
    variable = name.upper().replace("-", "_")
    value = environ.get(variable if name in ("content-type", "content-length") else f"HTTP_{variable}", "")
    return str(value).encode("latin-1", "replace").decode("utf-8", "replace")


def body_of(environ: dict[str, Any]) -> bytes:
    """The whole body of a request, which stays readable."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if environ.get("wsgi.input_terminated"):
        length = "-1"
    elif not re.fullmatch(r"[0-9]{1,18}", length):
        return b""
    body: bytes = environ["wsgi.input"].read(int(length))
    environ["wsgi.input"] = io.BytesIO(body)
    return body
