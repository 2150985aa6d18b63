"""A Kubernetes API of a few dictionaries, which remembers what it was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubernetes import client

PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/v1[a-z0-9]*(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?$"
)


class Use(NamedTuple):
    """One verb on one resource, as RBAC names them."""

    group: str
    resource: str
    verb: str


class Answer(NamedTuple):
    data: bytes

    def stream(self, _amount: int) -> Iterator[bytes]:
        yield self.data

    def release_conn(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class FakeKubernetesApi:
    """Stands in for `kubernetes.client.ApiClient`."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Objects by resource and name. Resources of Kubernetes' own two groups have their plural as their name."""
    missing: set[str] = field(default_factory=set)
    """API groups that are not installed."""
    logs: dict[str, str] = field(default_factory=dict)
    """Logs by pod."""
    used_in_namespace: set[Use] = field(default_factory=set)
    used_in_cluster: set[Use] = field(default_factory=set)

    def add(self, resource: str, manifest: dict[str, Any]) -> None:
        self.objects[resource, manifest["metadata"]["name"]] = manifest

    def names(self, resource: str) -> list[str]:
        return sorted(name for kind, name in self.objects if kind == resource)

    def call_api(
        self, path: str, method: str, *, query_params: list[tuple[str, Any]], body: Any = None, **_options: Any
    ) -> Answer:
        found = PATH.match(path)
        assert found is not None, path
        resource, name, sub = found["resource"], found["name"], found["subresource"]
        if found["group"] in self.missing:
            raise not_found("404 page not found\n")
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        verb = verbs.get(method) or ("get" if name else "list")
        verb = "deletecollection" if verb == "delete" and not name else verb
        used = self.used_in_namespace if found["namespace"] else self.used_in_cluster
        used.add(Use(found["group"] or "", f"{resource}/{sub}" if sub else resource, verb))
        if sub == "log":
            return Answer(self.logs.get(name, "").encode())
        stored = resource if found["group"] in (None, "batch") else f"{resource}.{found['group']}"
        answer = getattr(self, f"_{verb}")(stored, name or (body and body["metadata"]["name"]), body, query_params)
        return Answer(json.dumps(answer).encode())

    def _create(self, resource: str, name: str, body: Any, _query: Any) -> Any:
        if (resource, name) in self.objects:
            raise client.ApiException(status=409, reason="AlreadyExists")
        body["metadata"]["resourceVersion"] = "1"
        self.objects[resource, name] = body
        return body

    def _update(self, resource: str, name: str, body: Any, query: Any) -> Any:
        found = self._get(resource, name, body, query)
        version = found["metadata"]["resourceVersion"]
        if body["metadata"].get("resourceVersion", version) != version:
            raise client.ApiException(status=409, reason="Conflict")
        body["metadata"]["resourceVersion"] = str(int(version) + 1)
        self.objects[resource, name] = body
        return body

    def _patch(self, resource: str, name: str, body: Any, query: Any) -> Any:
        found = self._get(resource, name, body, query)
        _merge(found, body)
        return found

    def _get(self, resource: str, name: str, _body: Any, _query: Any) -> Any:
        if resource == "pods" and name in self.logs and (resource, name) not in self.objects:
            return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}}
        if (resource, name) not in self.objects:
            raise not_found(json.dumps({"kind": "Status", "message": f"{resource} {name!r} not found"}))
        return self.objects[resource, name]

    def _delete(self, resource: str, name: str, body: Any, query: Any) -> Any:
        found = self._get(resource, name, body, query)
        del self.objects[resource, name]
        return found

    def _deletecollection(self, resource: str, _name: Any, body: Any, query: list[tuple[str, Any]]) -> Any:
        found = self._list(resource, None, body, query)
        for each in found["items"]:
            del self.objects[resource, each["metadata"]["name"]]
        return found

    def _list(self, resource: str, _name: Any, _body: Any, query: list[tuple[str, Any]]) -> Any:
        options = dict(query)
        items = [
            manifest
            for (kind, _), manifest in self.objects.items()
            if kind == resource
            and _matches(options.get("labelSelector", ""), manifest["metadata"].get("labels") or {})
            and _matches(options.get("fieldSelector", ""), _fields(manifest))
        ]
        return {"items": items}


def _fields(manifest: dict[str, Any]) -> dict[str, Any]:
    """What field selectors know of pods and of events."""
    about = manifest.get("involvedObject") or {}
    return {
        "status.phase": manifest.get("status", {}).get("phase"),
        "type": manifest.get("type"),
        "reason": manifest.get("reason"),
        **{f"involvedObject.{name}": value for name, value in about.items()},
    }


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    """A merge patch (RFC 7396)."""
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def not_found(body: str) -> client.ApiException:
    """The error as the client raises it."""
    error = client.ApiException(status=404, reason="Not Found")
    error.body = body
    return error


def _matches(selector: str, values: dict[str, Any]) -> bool:
    for requirement in filter(None, selector.split(",")):
        key, operator, value = re.fullmatch(r"([^=!]+)(!?=)?(.*)", requirement).groups()  # type: ignore[union-attr]
        if operator is None and key not in values:
            return False
        if operator and (values.get(key) == value) != (operator == "="):
            return False
    return True
