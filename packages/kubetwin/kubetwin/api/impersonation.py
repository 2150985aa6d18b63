"""`kubectl --as`: an administrator acts as another user, for example to test that user's rights."""

from __future__ import annotations

from dataclasses import replace

from starlette.datastructures import Headers

from kubetwin.api.authorization import Authorizer
from kubetwin.api.requests import RequestInfo
from kubetwin.authentication import AUTHENTICATED, User

_ACCOUNT = "system:serviceaccount:"


def acting_user(user: User, headers: Headers, authorizer: Authorizer) -> User:
    """The user whose rights a request has: the impersonated one, or the one who logged in.

    Raises:
        ApiError: 403 if the user may not act as the one whom the headers name.
    """
    name, groups = headers.get("impersonate-user", ""), headers.getlist("impersonate-group")
    if not name:
        return user
    wanted = RequestInfo("", "impersonate", version="v1", resource="users", name=name)
    if name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        groups = groups or ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        wanted = replace(wanted, resource="serviceaccounts", namespace=namespace, name=account)
    authorizer.check(user, wanted)
    for group in headers.getlist("impersonate-group"):
        authorizer.check(user, replace(wanted, resource="groups", namespace="", name=group))
    return User(name, (*groups, *(() if AUTHENTICATED in groups else (AUTHENTICATED,))))
