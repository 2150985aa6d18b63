"""Role-based access control over the roles and bindings in the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubetwin.api.requests import RequestInfo
from kubetwin.authentication import AUTHENTICATED, MASTERS, User
from kubetwin.model.errors import ApiError, GroupResource, Object, forbidden
from kubetwin.store import Store

_RBAC = "rbac.authorization.k8s.io"
_PUBLIC = ("/version", "/version/", "/healthz", "/livez", "/readyz")  # ClusterRole system:public-info-viewer
_DISCOVERY = ("/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz", "/version")  # system:discovery
_OWN_REVIEWS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")  # system:basic-user


@dataclass(frozen=True)
class Decision:
    allowed: bool
    reason: str = ""


class Authorizer:
    """Decides requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, user: User, info: RequestInfo) -> None:
        """Return if the user may make the request.

        Raises:
            ApiError: 403.
        """
        if not self.decide(user, info).allowed:
            raise _refusal(user, info)

    def decide(self, user: User, info: RequestInfo) -> Decision:
        if MASTERS in user.groups:
            return Decision(True)
        if not info.is_resource:
            return Decision(_open_path(user, info))
        if AUTHENTICATED in user.groups and info.verb == "create" and info.resource in _OWN_REVIEWS:
            return Decision(
                True, 'RBAC: allowed by ClusterRoleBinding "system:basic-user" of ClusterRole "system:basic-user"'
            )
        for binding, rules in self._bound_rules(info.namespace):
            subject = next((s for s in binding.get("subjects") or [] if _is_subject(s, user, binding)), None)
            if subject is not None and any(_covers(rule, info) for rule in rules):
                return Decision(True, _reason(binding, subject))
        return Decision(False)

    def _bound_rules(self, namespace: str) -> Iterator[tuple[Object, list[Object]]]:
        bindings = self._store.objects(f"clusterrolebindings.{_RBAC}")
        if namespace:
            bindings += self._store.objects(f"rolebindings.{_RBAC}", namespace)
        for binding in bindings:
            reference = binding["roleRef"]
            cluster_wide = reference["kind"] == "ClusterRole"
            key = f"clusterroles.{_RBAC}" if cluster_wide else f"roles.{_RBAC}"
            place = "" if cluster_wide else binding["metadata"].get("namespace", "")
            role = self._store.get(key, place, reference["name"])
            if role is not None:
                yield binding, role.get("rules") or []


def _open_path(user: User, info: RequestInfo) -> bool:
    if info.verb in ("get", "head") and info.path in _PUBLIC:
        return True
    below = any(info.path == path or info.path.startswith(f"{path}/") for path in _DISCOVERY)
    return AUTHENTICATED in user.groups and info.verb in ("get", "head") and below


def _is_subject(subject: Object, user: User, binding: Object) -> bool:
    if subject["kind"] == "ServiceAccount":
        namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
        return user.name == f"system:serviceaccount:{namespace}:{subject['name']}"
    return user.name == subject["name"] if subject["kind"] == "User" else subject["name"] in user.groups


def _covers(rule: Object, info: RequestInfo) -> bool:
    wanted = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    resources = rule.get("resources") or []
    fits = "*" in resources or wanted in resources or (info.subresource and f"*/{info.subresource}" in resources)
    return bool(
        fits
        and _any(rule.get("verbs"), info.verb)
        and _any(rule.get("apiGroups"), info.group)
        and (not rule.get("resourceNames") or info.name in rule["resourceNames"])
    )


def _any(allowed: list[str] | None, value: str) -> bool:
    return "*" in (allowed or []) or value in (allowed or [])


def _reason(binding: Object, subject: Object) -> str:
    metadata, reference = binding["metadata"], binding["roleRef"]
    namespace = metadata.get("namespace", "")
    bound = f'RoleBinding "{metadata["name"]}/{namespace}"' if namespace else f'ClusterRoleBinding "{metadata["name"]}"'
    who = f'{subject["kind"]} "{subject["name"]}"'
    if subject["kind"] == "ServiceAccount":
        who = f'ServiceAccount "{subject["name"]}/{subject.get("namespace") or namespace}"'
    return f'RBAC: allowed by {bound} of {reference["kind"]} "{reference["name"]}" to {who}'


def _refusal(user: User, info: RequestInfo) -> ApiError:
    if not info.is_resource:
        detail = f'forbidden: User "{user.name}" cannot {info.verb} path "{info.path}"'
        return ApiError(403, "Forbidden", detail, {})
    what = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    detail = f'User "{user.name}" cannot {info.verb} resource "{what}" in API group "{info.group}" {scope}'
    return forbidden(GroupResource(info.resource, info.group), info.name, detail)
