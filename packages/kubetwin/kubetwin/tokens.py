"""Service account tokens: signed by the server, checked against the accounts that exist."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable

import jwt

from kubetwin.authentication import AUTHENTICATED, User
from kubetwin.model.errors import Object

AUDIENCE = "https://kubernetes.default.svc"
_ALGORITHM = "HS256"

FindAccount = Callable[[str, str], Object | None]


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
        return jwt.encode(claims, self._key, _ALGORITHM)

    def authenticate(self, token: str) -> User | None:
        try:
            claims = jwt.decode(token, self._key, [_ALGORITHM], audience=AUDIENCE, issuer=AUDIENCE)
        except jwt.InvalidTokenError:
            return None
        identity = claims["kubernetes.io"]
        account = self._find_account(identity["namespace"], identity["serviceaccount"]["name"])
        if account is None or account["metadata"]["uid"] != identity["serviceaccount"]["uid"]:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{identity['namespace']}", AUTHENTICATED)
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        return User(claims["sub"], groups, identity["serviceaccount"]["uid"], extra)
