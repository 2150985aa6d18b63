"""Refuses requests of strangers at the twin's endpoint before moto reads them.

Every user of the machine reaches the loopback interface, and so does every web page in a browser. Credentials with a
key that the twin has given out are asked of each request, but for reading public objects of S3. moto would answer web
pages of any origin, and its own interface, `/moto-api`, shows and resets everything without credentials.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs

from local.aws.access.guard import ANONYMOUS, Guard
from local.aws.replacements import replace

MISSING = "MissingAuthenticationToken"


def install(guard: Guard) -> None:
    """Refuse strangers while a server of the twin runs."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    answer = DomainDispatcherApplication.__call__

    def call(self: Any, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        code = refusal(environ, is_signed=_is_signed(guard, environ))
        if code is None:
            found: Iterable[bytes] = answer(self, environ, start_response)
            return found
        start_response("403 Forbidden", [("Content-Type", "text/plain"), ("x-amzn-errortype", code)])
        return [f"{code}: this endpoint answers the clients of one user's twin.\n".encode()]

    replace(DomainDispatcherApplication, "__call__", call)


def refusal(environ: dict[str, Any], *, is_signed: bool) -> str | None:
    """The error of a request that is not to be answered; None for others.

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
    return None if reads and not names_service else MISSING


def _is_signed(guard: Guard, environ: dict[str, Any]) -> bool:
    presigned = parse_qs(environ.get("QUERY_STRING", "")).get("X-Amz-Credential", [""])[0]
    header = environ.get("HTTP_AUTHORIZATION") or f"Credential={presigned}"
    return guard.caller({"Authorization": header}) != ANONYMOUS
