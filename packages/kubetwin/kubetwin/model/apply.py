"""Owners of fields, and server-side apply.

Field sets are kept in `metadata.managedFields` in the server's own notation: `f:` fields, `k:` elements of keyed lists,
`v:` elements of sets. Whole objects and lists that are replaced as one (`x-kubernetes-map-type: atomic`) are one field.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.model.schema import Schema, property_schema, resolve

Manager = tuple[str, str]
"""Name, and Apply or Update: both may be the same client's, and then own fields apart from each other."""

Path = tuple[str, ...]
"""Steps to a field: `f:name` into an object, `k:{"name":"c"}` or `v:"x"` to an element of a list."""

BEFORE_FIRST_APPLY: Manager = ("before-first-apply", "Update")
"""Owner of the fields of an unowned object that is applied for the first time."""

_SERVER_FIELDS = ("apiVersion", "kind", "metadata", "status")
_OWNED_METADATA = ("labels", "annotations", "ownerReferences", "finalizers", "generateName")


@dataclass(frozen=True)
class _Entry:
    """The fields of one manager, and when it last changed them."""

    paths: frozenset[Path]
    api_version: str
    time: str


def apply(live: Object, applied: Object, schema: Schema, *, manager: str, force: bool, moment: datetime) -> Object:
    """The object after `manager` applied `applied` to `live`.

    Raises:
        ApiError: 409 that names each field which another manager set to another value.
    """
    wanted = dict(_leaves(_owned_part(applied), schema))
    present = dict(_leaves(_owned_part(live), schema))
    entries = _entries(live)
    if not entries and present:
        entries = {BEFORE_FIRST_APPLY: _Entry(frozenset(present), live.get("apiVersion", ""), times.seconds(moment))}
    owners, own = {key: set(entry.paths) for key, entry in entries.items()}, (manager, "Apply")
    fights = [
        (other, path)
        for path, value in wanted.items()
        for other, paths in owners.items()
        if other != own and path in paths and present.get(path) != value
    ]
    if fights and not force:
        raise _conflicts(fights, live.get("apiVersion", ""))
    for other, path in fights:
        owners[other].discard(path)
    given_up = owners.get(own, set()) - set(wanted)
    owners[own] = set(wanted)
    result = _merge(live, applied, schema)
    for path in sorted(given_up, key=len, reverse=True):
        if not any(path in paths for paths in owners.values()):
            _remove(result, path)
    return _with_owners(result, owners, entries, applied.get("apiVersion", ""), moment)


def created_by(manager: str, obj: Object, schema: Schema) -> Object:
    """A new object whose fields all belong to the client that created it."""
    if "managedFields" in obj["metadata"]:  # a server-side apply, which has set the owners
        return obj
    owners = {(manager, "Update"): {path for path, _ in _leaves(_owned_part(obj), schema)}}
    return _with_owners(obj, owners, {}, obj.get("apiVersion", ""), times.now())


def updated_by(manager: str, old: Object, new: Object, schema: Schema) -> Object:
    """The object after an ordinary update: the fields that it changed belong to the client that updated it."""
    entries = _entries(old)
    if _entries(new) != entries:  # an apply, which sets the owners itself, or a client that wrote them
        return new
    before = dict(_leaves(_owned_part(old), schema))
    after = dict(_leaves(_owned_part(new), schema))
    owners = {
        key: {path for path in entry.paths if path in after and before.get(path) == after[path]}
        for key, entry in entries.items()
    }
    taken = {path for path, value in after.items() if path not in before or before[path] != value}
    if manager and taken:
        owners.setdefault((manager, "Update"), set()).update(taken)
    return _with_owners(new, owners, entries, new.get("apiVersion", ""), times.now())


def faults_of_type(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Reasons why a value cannot be applied: fields without a declaration, wrong types, repeated elements."""
    name, schema = resolve(schema)
    if value is None or name.endswith(("Quantity", "IntOrString")):
        return
    if "properties" in schema or isinstance(schema.get("additionalProperties"), dict):
        yield from _faults_of_object(value, schema, path)
    elif "items" in schema:
        yield from _faults_of_list(value, schema, path)
    elif (wanted := _expected(value, schema)) is not None:
        yield f"{path}: expected {wanted}"


def _faults_of_object(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got {_go_value(value)}"
        return
    free = schema.get("x-kubernetes-preserve-unknown-fields")
    for key, item in value.items():
        if not free and key not in schema.get("properties", {}) and "additionalProperties" not in schema:
            yield f"{path}.{key}: field not declared in schema"
        else:
            yield from faults_of_type(item, property_schema(schema, key), f"{path}.{key}")


def _faults_of_list(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got {_go_value(value)}"
        return
    keyed, seen = schema.get("x-kubernetes-list-type") == "map", set()
    for place, item in enumerate(value):
        step = f"[{place}]"
        if keyed and isinstance(item, dict):
            key = _list_key(item, schema)
            step = _dotted((key,))
            if key in seen:
                yield f"{path}: duplicate entries for key {step}"
            seen.add(key)
        yield from faults_of_type(item, schema["items"], f"{path}{step}")


def _expected(value: Any, schema: Schema) -> str | None:
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "string" in kinds and not isinstance(value, str):
        return f"string, got {_go_value(value)}"
    if "boolean" in kinds and not isinstance(value, bool):
        return f"boolean, got {_go_value(value)}"
    if {"integer", "number"} & set(kinds) and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"numeric (int or float), got {'bool' if isinstance(value, bool) else 'string'}"
    return None


def _go_value(value: Any) -> str:
    shown = json.dumps(value) if isinstance(value, bool | int | float) else str(value)
    return f"&value.valueUnstructured{{Value:{json.dumps(value) if isinstance(value, str) else shown}}}"


def _conflicts(fights: list[tuple[Manager, Path]], version: str) -> ApiError:
    def shown(manager: Manager) -> str:
        return f'"{manager[0]}" using {version}' if manager[1] == "Update" else f'"{manager[0]}"'

    fights = sorted(fights)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {shown(m)}", "field": _dotted(p)}
        for m, p in fights
    ]
    if len(fights) == 1:
        [(manager, path)] = fights
        message = f"Apply failed with 1 conflict: conflict with {shown(manager)}: {_dotted(path)}"
        return ApiError(409, "Conflict", message, {"causes": causes})
    lines: dict[Manager, list[str]] = {}
    for manager, path in fights:
        lines.setdefault(manager, [f"conflicts with {shown(manager)}:"]).append(f"- {_dotted(path)}")
    listed = "\n".join(line for each in lines.values() for line in each)
    return ApiError(409, "Conflict", f"Apply failed with {len(fights)} conflicts: {listed}", {"causes": causes})


def _dotted(path: Path) -> str:
    shown = ""
    for step in path:
        kind, _, value = step.partition(":")
        if kind == "f":
            shown += f".{value}"
        elif kind == "v":
            shown += f"[={value}]"
        else:
            keys = ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(value).items())
            shown += f"[{keys}]"
    return shown


def _owned_part(obj: Object) -> Object:
    part = {key: value for key, value in obj.items() if key not in _SERVER_FIELDS}
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k in _OWNED_METADATA}
    return {**part, "metadata": metadata} if metadata else part


def _is_atomic(schema: Schema) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"


def _leaves(value: Any, schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    reference = schema
    _, schema = resolve(schema)
    if isinstance(value, dict) and value and not _is_atomic(schema) and not _is_atomic(reference):
        for key, item in value.items():
            yield from _leaves(item, property_schema(schema, key), (*path, f"f:{key}"))
    elif isinstance(value, list) and value and schema.get("x-kubernetes-list-type") == "map":
        for item in value:
            yield from _leaves(item, schema.get("items", {}), (*path, _list_key(item, schema)))
    elif isinstance(value, list) and value and schema.get("x-kubernetes-list-type") == "set":
        for item in value:
            yield (*path, f"v:{json.dumps(item)}"), item
    elif path:
        yield path, value


_DEFAULT_KEYS = {"protocol": "TCP"}
"""Keys of lists that have a default: an element without it is the same as the stored one, which has it."""


def _list_key(item: Object, schema: Schema) -> str:
    given = {**_DEFAULT_KEYS, **item}
    keys = {key: given[key] for key in schema["x-kubernetes-list-map-keys"] if key in given}
    return "k:" + json.dumps(keys, separators=(",", ":"), sort_keys=True)


def _merge(live: Any, applied: Any, schema: Schema) -> Any:
    reference = schema
    _, schema = resolve(schema)
    if isinstance(applied, dict) and not _is_atomic(schema) and not _is_atomic(reference):
        result = dict(live) if isinstance(live, dict) else {}
        for key, item in applied.items():
            result[key] = _merge(result.get(key), item, property_schema(schema, key))
        return result
    if isinstance(applied, list) and isinstance(live, list) and schema.get("x-kubernetes-list-type") == "map":
        items = schema.get("items", {})
        merged = {_list_key(item, schema): item for item in live}
        for item in applied:
            key = _list_key(item, schema)
            merged[key] = _merge(merged.get(key), item, items)
        return list(merged.values())
    if isinstance(applied, list) and isinstance(live, list) and schema.get("x-kubernetes-list-type") == "set":
        return [*live, *(item for item in applied if item not in live)]
    return copy.deepcopy(applied)


def _remove(obj: Any, path: Path) -> None:
    """Delete one leaf in place; branches that may be shared with the live object are copied."""
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(obj, dict) and step[2:] in obj:
        _remove_field(obj, step[2:], rest)
    elif step.startswith("v:") and isinstance(obj, list):
        obj[:] = [item for item in obj if item != json.loads(step[2:])]
    elif step.startswith("k:") and isinstance(obj, list):
        keys = json.loads(step[2:])
        for place, item in enumerate(obj):
            if all(item.get(key, _DEFAULT_KEYS.get(key)) == value for key, value in keys.items()):
                obj[place] = copy.copy(item)
                if rest[0].removeprefix("f:") not in keys:  # by its keys the element is found: they go with it
                    _remove(obj[place], rest)
                if set(obj[place]) <= set(keys):
                    del obj[place]
                return


def _remove_field(obj: Object, key: str, rest: Path) -> None:
    if rest:
        obj[key] = copy.copy(obj[key])
        _remove(obj[key], rest)
    if not rest or (rest[0].startswith("v:") and not obj[key]):
        del obj[key]


def _entries(obj: Object) -> dict[Manager, _Entry]:
    return {
        (each["manager"], each.get("operation", "")): _Entry(
            frozenset(_paths(each.get("fieldsV1", {}))), each.get("apiVersion", ""), each.get("time", "")
        )
        for each in obj.get("metadata", {}).get("managedFields") or []
        if "manager" in each
    }


def _paths(fields: Object, path: Path = ()) -> Iterator[Path]:
    if not fields and path:
        yield path
    for step, inner in fields.items():
        if step != ".":
            yield from _paths(inner, (*path, step))


def _with_owners(
    obj: Object,
    owners: Mapping[Manager, set[Path]],
    before: Mapping[Manager, _Entry],
    api_version: str,
    moment: datetime,
) -> Object:
    """The object with the entries of its managers; an entry whose fields stay keeps its time."""
    entries = []
    for manager, paths in owners.items():
        old = before.get(manager)
        kept = old is not None and old.paths == paths
        version, time = (old.api_version, old.time) if old and kept else (api_version, times.seconds(moment))
        if paths:
            entries.append(_encoded(manager, paths, version, time))
    entries.sort(key=lambda each: (each["operation"], each["time"], each["manager"]))
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": {**metadata, "managedFields": entries} if entries else metadata}


def _encoded(manager: Manager, paths: set[Path], api_version: str, time: str) -> Object:
    fields: Object = {}
    for path in sorted(paths):
        place = fields
        for step in path:
            place = place.setdefault(step, {})
    return {
        "manager": manager[0],
        "operation": manager[1],
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
