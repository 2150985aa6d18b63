"""OpenAPI v3 documents: kubectl reads from them which fields a patch merges by key, and the text of `kubectl explain`.

They hold only what clients read: the paths with their kinds and the content types of PATCH, and the types.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from kubetwin.api.discovery import VERSION
from kubetwin.model.errors import Object
from kubetwin.model.schema import OBJECT_META, Schema, definition
from kubetwin.resources import Registry
from kubetwin.resources.resource import Resource

_DEFINED, _PUBLISHED = "#/$defs/", "#/components/schemas/"
_KIND = "x-kubernetes-group-version-kind"
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
V2_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
EMPTY_V2 = b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x04v1.0\x42\x00"
"""`{swagger: "2.0", info: {title, version}, paths: {}}`. kubectl reads version 2 if version 3 lacks the kind, and
reports an unknown kind only if it could."""
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
_DRY_RUN = {"name": "dryRun", "in": "query", "schema": {"type": "string", "uniqueItems": True}}


class OpenApi:
    """The documents of one registry. They are made at the first request: most clients make none."""

    def __init__(self, registry: Registry) -> None:
        self._resources: dict[str, list[Resource]] = {}
        for resource in registry:
            self._resources.setdefault(_place(resource), []).append(resource)
        self._text = cache(self._make_text)

    def index(self) -> Object:
        """The index: URL of each group and version's document, with a hash for kubectl's cache."""
        return {"paths": {place: {"serverRelativeURL": self._address(place)} for place in sorted(self._resources)}}

    def document(self, place: str) -> bytes | None:
        """The document of one group and version (`api/v1`, `apis/batch/v1`); None if it does not exist."""
        return self._text(place) if place in self._resources else None

    def _address(self, place: str) -> str:
        return f"/openapi/v3/{place}?hash={hashlib.sha512(self._text(place)).hexdigest().upper()}"

    def _make_text(self, place: str) -> bytes:
        resources = self._resources[place]
        types = {_type_name(resource): _type_of(resource) for resource in resources}
        document = {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
            "paths": {path: item for resource in resources for path, item in _paths(resource)},
            "components": {"schemas": _with_references(types)},
        }
        return json.dumps(document, separators=(",", ":")).encode()


def _place(resource: Resource) -> str:
    return f"apis/{resource.group_version}" if resource.group else f"api/{resource.version}"


def _type_name(resource: Resource) -> str:
    """The type's full name; a custom kind's is its group backwards, as apiextensions-apiserver has it."""
    if resource.type_name:
        return resource.type_name
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _type_of(resource: Resource) -> Schema:
    schema = resource.type_schema() or {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"{_DEFINED}{OBJECT_META}"},
        },
        "x-kubernetes-preserve-unknown-fields": True,
    }
    return {**schema, _KIND: [resource.group_version_kind]}


def _paths(resource: Resource) -> Iterator[tuple[str, Object]]:
    """The path of a collection and that of an object in it."""
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"/{_place(resource)}{scope}/{resource.plural}"
    content = {"application/json": {"schema": {"$ref": f"{_PUBLISHED}{_type_name(resource)}"}}}
    answer = {"responses": {"200": {"description": "OK", "content": content}}, _KIND: resource.group_version_kind}
    write = {**answer, "parameters": [_DRY_RUN, _FIELD_VALIDATION], "requestBody": {"content": content}}
    kinds = _PATCHES if resource.custom else (*_PATCHES, _STRATEGIC_PATCH)
    patch = {**write, "requestBody": {"content": {kind: {"schema": {"type": "object"}} for kind in kinds}}}
    yield collection, {"get": answer, "post": write}
    yield f"{collection}/{{name}}", {"get": answer, "put": write, "patch": patch, "delete": answer}


def _with_references(types: dict[str, Schema]) -> dict[str, Schema]:
    """The types and all that they refer to, in OpenAPI's own notation."""
    found: dict[str, Schema] = {}
    waiting = dict(types)
    while waiting:
        name, schema = waiting.popitem()
        wanted: set[str] = set()
        found[name] = _published(schema, wanted)
        waiting |= {other: definition(other) for other in wanted if other not in found and other not in waiting}
    return found


def _published(value: Any, wanted: set[str]) -> Any:
    """A schema without the keywords that OpenAPI 3.0 lacks; records the names of the types in it."""
    if isinstance(value, list):
        return [_published(item, wanted) for item in value]
    if not isinstance(value, dict):
        return value
    shown = {key: _published(item, wanted) for key, item in value.items()}
    if isinstance(shown.get("$ref"), str):
        name = shown.pop("$ref").removeprefix(_DEFINED)
        wanted.add(name)
        return {**shown, "allOf": [{"$ref": f"{_PUBLISHED}{name}"}]} if shown else {"$ref": f"{_PUBLISHED}{name}"}
    if isinstance(shown.get("type"), list):
        shown["type"] = next(kind for kind in shown["type"] if kind != "null")
    return shown
