"""Service account tokens: signed by the server, checked against the accounts that exist."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
import uuid
from collections.abc import Callable

from kubetwin.authentication import AUTHENTICATED, User
from kubetwin.model.errors import Object

AUDIENCE = "https://kubernetes.default.svc"
_HEADER = {"alg": "HS256", "typ": "JWT"}

FindAccount = Callable[[str, str], Object | None]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class ServiceAccountTokens:
    """Issues and checks the tokens of one server; they end with its process, as the key does."""

    def __init__(self, find_account: FindAccount) -> None:
        self._key = secrets.token_bytes(32)
        self._find_account = find_account

    def issue(self, account: Object, seconds: int, audiences: list[str]) -> str:
        """A token for a service account that is valid for `seconds`."""
        metadata = account["metadata"]
        now = int(time.time())
        identity = {
            "namespace": metadata["namespace"],
            "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
        }
        claims = {
            "aud": audiences,
            "iss": AUDIENCE,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "iat": now,
            "nbf": now,
            "exp": now + seconds,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": identity,
        }
        signed = ".".join(_encode(json.dumps(part, separators=(",", ":")).encode()) for part in (_HEADER, claims))
        return f"{signed}.{self._signature(signed)}"

    def authenticate(self, token: str) -> User | None:
        signed, _, signature = token.rpartition(".")
        if signed.count(".") != 1 or not hmac.compare_digest(signature, self._signature(signed)):
            return None
        claims = json.loads(_decode(signed.split(".")[1]))
        identity = claims["kubernetes.io"]
        account = self._find_account(identity["namespace"], identity["serviceaccount"]["name"])
        if claims["exp"] < time.time() or AUDIENCE not in claims["aud"] or account is None:
            return None
        if account["metadata"]["uid"] != identity["serviceaccount"]["uid"]:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{identity['namespace']}", AUTHENTICATED)
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        return User(claims["sub"], groups, identity["serviceaccount"]["uid"], extra)

    def _signature(self, signed: str) -> str:
        return _encode(hmac.new(self._key, signed.encode(), hashlib.sha256).digest())
