"""Authenticators for the administrator's token, for service accounts, and for EKS's STS tokens."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
STS_PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
TOKEN_SECONDS = 15 * 60
"""Seconds after its signing while a presigned URL is accepted (aws-iam-authenticator's limit)."""


@dataclass(frozen=True)
class User:
    """An authenticated client, or `ANONYMOUS`."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict, hash=False)


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))


class Authenticator(Protocol):
    """Recognises one sort of Bearer token."""

    def authenticate(self, token: str) -> User | None:
        """The user of the token; None if it is not one of this authenticator's or not valid.

        May block: it is called in a thread.
        """
        ...


@dataclass(frozen=True)
class StaticTokenAuthenticator:
    """Accepts one token, the administrator's."""

    token: str
    user: User = ADMIN

    def authenticate(self, token: str) -> User | None:
        return self.user if hmac.compare_digest(token.encode(), self.token.encode()) else None


def bearer_token(header: str) -> str | None:
    """The bearer token of an Authorization header; None without a header and for other schemes."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


Identify = Callable[[str], Awaitable[User | None]]
"""Function from a token to its user; None for a token that no authenticator accepts."""


def identify_with(own: Sequence[Authenticator], others: Sequence[Authenticator]) -> Identify:
    """Identify a user by authenticators, tried one after the other.

    Args:
        own: Authenticators that answer from memory; called on the event loop.
        others: Authenticators that may call another server; called in a thread, so that they block no other request.
    """

    async def identify(token: str) -> User | None:
        user = _first(own, token)
        if user is None and others:
            user = await asyncio.to_thread(_first, others, token)
        return user

    return identify


def _first(authenticators: Sequence[Authenticator], token: str) -> User | None:
    users = (authenticator.authenticate(token) for authenticator in authenticators)
    return next((user for user in users if user is not None), None)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


Fetch = Callable[[str, dict[str, str]], bytes]
"""GET a URL with headers."""

GroupsOf = Callable[[str], tuple[str, ...] | None]
"""Function from the ARN of a caller to its groups; None for a caller that may not log in."""


def masters(_arn: str) -> tuple[str, ...]:
    """Groups that allow everything, for every caller."""
    return (MASTERS,)


def fetch(url: str, headers: dict[str, str]) -> bytes:
    """GET from a place that the caller has checked: no proxy, no redirects."""
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (see the docstring)
    with opener.open(request, timeout=10) as answer:
        body: bytes = answer.read(64 * 1024)
    return body


class StsAuthenticator:
    """Checks tokens as EKS does: each is a presigned URL of `sts:GetCallerIdentity`, which is fetched.

    The cluster's name is a signed header of the URL, so a token for another cluster is not valid here. Only the
    configured endpoint is ever called: the URL comes from the client.
    """

    def __init__(
        self,
        sts_endpoint: str,
        cluster_name: str,
        *,
        groups_of: GroupsOf = masters,
        cache_seconds: float = 60.0,
        fetch: Fetch = fetch,
    ) -> None:
        """
        Args:
            sts_endpoint: Base URL of STS.
            cluster_name: The EKS cluster's name, which the client must have signed.
            groups_of: Groups that the cluster's access entries give a caller.
            cache_seconds: Seconds while an accepted token is accepted again without a request, at most 60.
            fetch: Replaced in tests.
        """
        self._endpoint = urlsplit(sts_endpoint)
        self._cluster_name = cluster_name
        self._groups_of = groups_of
        self._cache_seconds = min(cache_seconds, 60.0)
        self._fetch = fetch
        self._accepted: dict[str, tuple[float, User]] = {}

    def authenticate(self, token: str) -> User | None:
        if not token.startswith(STS_PREFIX):
            return None
        now = time.monotonic()
        self._accepted = {key: entry for key, entry in self._accepted.items() if entry[0] > now}
        if token in self._accepted:
            return self._accepted[token][1]
        url = self._presigned_url(token)
        user = self._caller(url) if url else None
        if user is not None:
            self._accepted[token] = (now + self._cache_seconds, user)
        return user

    def _presigned_url(self, token: str) -> str | None:
        encoded = token.removeprefix(STS_PREFIX)
        try:
            url = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
            parts = urlsplit(url)
            same_place = (parts.scheme, parts.hostname, parts.port) == (
                self._endpoint.scheme,
                self._endpoint.hostname,
                self._endpoint.port,
            )
        except (binascii.Error, ValueError):
            return None
        query = parse_qs(parts.query)
        if not self._is_fresh(query.get("X-Amz-Date", [""])[0]):
            return None
        signed = query.get("X-Amz-SignedHeaders", [""])[0].lower().split(";")
        action = query.get("Action", [""])
        if not same_place or parts.path not in ("", "/") or action != ["GetCallerIdentity"]:
            return None
        return url if CLUSTER_HEADER in signed else None

    def _is_fresh(self, signed_at: str) -> bool:
        try:
            moment = datetime.strptime(signed_at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            return False
        return abs((datetime.now(UTC) - moment).total_seconds()) <= TOKEN_SECONDS

    def _caller(self, url: str) -> User | None:
        try:
            body = self._fetch(url, {CLUSTER_HEADER: self._cluster_name, "Accept": "application/xml"})
            root = ElementTree.fromstring(body)  # noqa: S314 (the answer of the configured STS endpoint)
        except (OSError, urllib.error.URLError, ElementTree.ParseError):
            return None
        result = root.find("{*}GetCallerIdentityResult")
        arn = result.findtext("{*}Arn") if result is not None else None
        groups = self._groups_of(arn) if arn else None
        if arn is None or groups is None:
            return None
        account = root.findtext("{*}GetCallerIdentityResult/{*}Account") or ""
        user_id = root.findtext("{*}GetCallerIdentityResult/{*}UserId") or ""
        return User(
            arn,
            (*groups, AUTHENTICATED),
            uid=f"aws-iam-authenticator:{account}:{user_id}",
            extra={"arn": [arn], "accountId": [account], "principalId": [user_id]},
        )
