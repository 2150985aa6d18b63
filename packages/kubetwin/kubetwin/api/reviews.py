"""Reviews of access, identity and tokens: objects that are answered at creation and not stored."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from kubetwin.api.authorization import Authorizer
from kubetwin.api.bodies import parse_body
from kubetwin.api.call import Call
from kubetwin.api.negotiation import respond
from kubetwin.api.requests import RequestInfo
from kubetwin.authentication import Identify, User
from kubetwin.model import times
from kubetwin.model.errors import Object, Shown, bad_request, bad_value, invalid
from kubetwin.model.go_types import go_text
from kubetwin.resources import Registry
from kubetwin.resources.resource import Resource

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_PATHS = ("/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version")

REVIEWS = tuple(
    Resource(kind=kind, plural=f"{kind.lower()}s", group=group, namespaced=False, verbs=("create",))
    for kind, group in (
        ("SelfSubjectReview", _AUTHENTICATION),
        ("TokenReview", _AUTHENTICATION),
        ("SelfSubjectAccessReview", _AUTHORIZATION),
        ("SelfSubjectRulesReview", _AUTHORIZATION),
        ("SubjectAccessReview", _AUTHORIZATION),
    )
)


def review_of(info: RequestInfo) -> Resource | None:
    """The review that a path is for."""
    wanted = (info.group, info.version, info.resource)
    return next((r for r in REVIEWS if (r.group, r.version, r.plural) == wanted), None)


class Reviews:
    """Answers reviews."""

    def __init__(self, registry: Registry, authorizer: Authorizer, identify: Identify) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._identify = identify

    async def create(self, call: Call) -> Response:
        review = parse_body(call.body, call.content_type, call.resource)
        spec = review.get("spec") or {}
        kind = call.resource.kind
        _check(kind, spec)
        if kind == "TokenReview":
            status = await self._token(str(spec.get("token", "")))
        elif kind == "SelfSubjectReview":
            status = {"userInfo": _user_info(call.user)}
        elif kind == "SelfSubjectAccessReview":
            status = self._access(call.user, spec)
        elif kind == "SelfSubjectRulesReview":
            status = self._rules(call.user, str(spec.get("namespace", "")))
        else:
            user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
            status = self._access(user, spec)
        answer: Object = {"kind": kind, "apiVersion": call.resource.group_version, "metadata": {}}
        if kind == "SelfSubjectReview":
            answer["metadata"] = {"creationTimestamp": times.seconds(times.now())}
        if kind != "SelfSubjectReview":
            answer["spec"] = spec
        return respond({**answer, "status": status}, 201)

    def _access(self, user: User, spec: Object) -> Object:
        wanted = spec.get("resourceAttributes") or {}
        path = spec.get("nonResourceAttributes") or {}
        info = RequestInfo(
            path.get("path", ""),
            wanted.get("verb", "") or path.get("verb", ""),
            wanted.get("group", ""),
            wanted.get("version", ""),
            wanted.get("resource", ""),
            wanted.get("subresource", ""),
            wanted.get("namespace", ""),
            wanted.get("name", ""),
        )
        decision = self._authorizer.decide(user, info)
        return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}

    def _rules(self, user: User, namespace: str) -> Object:
        """The rights of a user in a namespace: each resource with its allowed verbs.

        Rights to single objects (`resourceNames`) are not in it, and the rules are not those of the roles.
        """
        paths = [path for path in _PATHS if self._authorizer.decide(user, RequestInfo(path, "get")).allowed]
        rules: list[Object] = []
        for resource in [*self._registry, *REVIEWS]:
            subresources = [(f"{resource.plural}/{sub.name}", sub.name, sub.verbs) for sub in resource.subresources]
            for shown, subresource, verbs in [(resource.plural, "", resource.verbs), *subresources]:
                info = RequestInfo("", "", resource.group, resource.version, resource.plural, subresource, namespace)
                may = [v for v in verbs if self._authorizer.decide(user, replace(info, verb=v)).allowed]
                if may:
                    rules.append({"verbs": may, "apiGroups": [resource.group], "resources": [shown]})
        urls = [{"verbs": ["get"], "nonResourceURLs": paths}] if paths else []
        return {"resourceRules": rules, "nonResourceRules": urls, "incomplete": False}

    async def _token(self, token: str) -> Object:
        user = await self._identify(token)
        if user is None:
            return {"authenticated": False, "error": "invalid bearer token"}
        return {"authenticated": True, "user": _user_info(user)}


def _check(kind: str, spec: Object) -> None:
    """Refuse a review that asks for nothing (pkg/apis/authorization/validation and the reviews' storage).

    Raises:
        ApiError: 400 or 422.
    """
    if kind == "TokenReview" and not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    if kind == "SelfSubjectRulesReview" and not spec.get("namespace"):
        raise bad_request("no namespace on request")
    if not kind.endswith("AccessReview"):
        return
    about_resource, about_path, faults = spec.get("resourceAttributes"), spec.get("nonResourceAttributes"), []
    if about_resource is not None and about_path is not None:
        shown = Shown(go_text(about_path, "NonResourceAttributes"))
        detail = "cannot be specified in combination with resourceAttributes"
        faults.append(bad_value("spec.nonResourceAttributes", shown, detail))
    if about_resource is None and about_path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        faults.append(bad_value("spec.resourceAttributes", None, detail))
    if kind == "SubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        faults.append(bad_value("spec.user", "", "at least one of user or group must be specified"))
    if faults:  # the server's own object has lost its kind when its message is made
        raise invalid("", _AUTHORIZATION, "", faults)


def _user_info(user: User) -> Object:
    info: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    return {**info, "extra": user.extra} if user.extra else info
