"""Tables and partial metadata: the representations that `kubectl get` requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubetwin.api.negotiation import Wanted
from kubetwin.model.errors import Object, bad_request
from kubetwin.model.schema import definition
from kubetwin.resources.resource import Column, Resource

KINDS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_META = "meta.k8s.io/v1"


def _definition(column: Column) -> Object:
    text = f"{column.name} of the object."
    if column.described_by:
        type_name, field = column.described_by
        text = definition(type_name)["properties"][field]["description"]
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": text,
        "priority": column.priority,
    }


def partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}


def included(query: Mapping[str, str]) -> str:
    """The part of each object that goes with its row: None, Metadata or Object.

    Raises:
        ApiError: 400 for another word.
    """
    wanted = query.get("includeObject") or "Metadata"
    if wanted not in _PARTS:
        raise bad_request(f'unrecognized includeObject value: "{wanted}"')
    return wanted


def table(
    resource: Resource, objects: Sequence[Object], metadata: Object, *, header: bool = True, include: str = "Metadata"
) -> Object:
    """A `Table` with a row for each object."""
    columns, part = resource.columns, _PARTS[include]
    rows = [{"cells": [column.value(obj) for column in columns], **part(obj)} for obj in objects]
    definitions = [_definition(column) for column in columns] if header else None
    return {
        "kind": "Table",
        "apiVersion": _META,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


_PARTS: dict[str, Callable[[Object], Object]] = {
    "None": lambda _obj: {},
    "Metadata": lambda obj: {"object": partial(obj)},
    "Object": lambda obj: {"object": obj},
}


def _versioned(shown: Object, wanted: Wanted) -> Object:
    """The representation in the version that was requested: `v1`, or `v1beta1` of the same content."""
    return {**shown, "apiVersion": f"meta.k8s.io/{wanted.version or 'v1'}"}


def present(
    resource: Resource, obj: Object, wanted: Wanted, *, header: bool = True, include: str = "Metadata"
) -> Object:
    """One object in the requested representation."""
    if wanted.as_kind == "Table":
        version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return _versioned(table(resource, [obj], version, header=header, include=include), wanted)
    return _versioned(partial(obj), wanted) if wanted.as_kind == "PartialObjectMetadata" else obj


def present_list(
    resource: Resource, objects: Sequence[Object], metadata: Object, wanted: Wanted, *, include: str = "Metadata"
) -> Object:
    """A list in the requested representation."""
    if wanted.as_kind == "Table":
        return _versioned(table(resource, objects, metadata, include=include), wanted)
    if wanted.as_kind == "PartialObjectMetadataList":
        items = [partial(obj) for obj in objects]
        return _versioned({"kind": wanted.as_kind, "metadata": metadata, "items": items}, wanted)
    items = [{key: value for key, value in obj.items() if key not in ("kind", "apiVersion")} for obj in objects]
    if resource.custom:
        items, metadata = list(objects), {"continue": "", **metadata}
    return {"kind": resource.list_kind, "apiVersion": resource.group_version, "metadata": metadata, "items": items}
