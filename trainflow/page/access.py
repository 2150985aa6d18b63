"""Who may see the page: whoever has the token, from this machine, through its own name.

The server listens on loopback. Other users of the machine and other pages in the same browser reach it there, too: the
first do not have the token, the second are refused by the Host header (a name that was rebound to 127.0.0.1) and by
the Origin header (a form on another site).
"""

from __future__ import annotations

import hmac
import json
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainflow.page.reconnection import Reconnection

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names of the server in a browser on this machine, or behind `ssh -L`."""

TOKEN = "token"  # noqa: S105 - the name of the parameter
"""Parameter of the page's first address."""

RECONNECT = "/reconnect"
"""Address for pages of an earlier start, which prove themselves there."""

MAX_PROOF_BYTES = 1000

START = "x-trainflow-start"
"""Header with the name of the server's start; a page of another start loads itself anew."""

READING = frozenset({"GET", "HEAD"})

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every answer: nothing but the page's own files is loaded, and no other site may frame or read it."""


class Guard:
    """ASGI middleware that lets in who has the token, and remembers them by a cookie."""

    def __init__(self, app: ASGIApp, *, token: str, port: int, start: str, reconnection: Reconnection) -> None:
        """Guards an application.

        Args:
            app: The application.
            token: What to ask for.
            port: Port of the server, for the cookie's name: browsers send a host's cookies to all of its ports.
            start: Name of this start of the server; pages of another one are loaded anew.
            reconnection: How those pages are known.
        """
        self._app, self._token, self._start, self._reconnection = app, token, start, reconnection
        self._cookie = f"trainflow-page-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault(START, self._start)
            await send(message)

        answer = self._foreign(scope) or await self._known_again(scope, receive)
        answer = answer or self._refusal(scope) or self._welcome(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _foreign(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if host_name(headers.get("host", "")) not in LOOPBACK_NAMES:
            return _refuse("This page answers to 127.0.0.1 and localhost only.")
        origin = headers.get("origin")
        if scope["method"] not in READING and origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return _refuse("This request comes from another site.")
        return None

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._is_known(headers) and not self._is_right(_given_token(scope)):
            return _refuse("Open the page with the address that `trainflow` printed: its token is missing or wrong.")
        return None

    def _welcome(self, scope: Scope) -> Response | None:
        """After the first visit the token leaves the address, so that it stands in no history and no screenshot."""
        if scope["method"] not in READING or _given_token(scope) is None:
            return None
        rest = [(name, value) for name, value in _query(scope) if name != TOKEN]
        answer = RedirectResponse(scope["path"] + (f"?{urlencode(rest)}" if rest else ""), status_code=303)
        if self._is_right(_given_token(scope)):
            self._remember(answer)
        return answer

    async def _known_again(self, scope: Scope, receive: Receive) -> Response | None:
        """A number to sign for a page of an earlier start, and the cookie for its proof."""
        if scope["path"] != RECONNECT:
            return None
        if scope["method"] in READING:
            return JSONResponse({"nonce": self._reconnection.number()})
        number, proof = await _proof(Request(scope, receive))
        if not self._reconnection.is_proven(number, proof):
            return _refuse("This page is not of the same Trainflow.")
        answer = Response(status_code=204)
        self._remember(answer)
        return answer

    def _remember(self, answer: Response) -> None:
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")

    def _is_known(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_right(cookie.value)

    def _is_right(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self._token.encode())


async def _proof(request: Request) -> tuple[str, str]:
    """The number and its signature in a request's body; two empty texts for anything else."""
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > MAX_PROOF_BYTES:
            return "", ""
    try:
        given = json.loads(text)
        return str(given["nonce"]), str(given["proof"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None if the header is invalid."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _given_token(scope: Scope) -> str | None:
    return next((value for name, value in _query(scope) if name == TOKEN), None)


def _refuse(sentence: str) -> Response:
    return PlainTextResponse(sentence + "\n", status_code=403)
