"""Server-side apply in its basic form.

Field sets are kept in `metadata.managedFields` in the server's own notation (`f:` fields, `k:` list keys). An ordinary
update owns the fields that it took from a manager which had applied them, and no others: these are the ones over which
the next apply can conflict.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.model.schema import Schema, property_schema, resolve

Manager = tuple[str, str]
"""Name, and Apply or Update: both may be the same client's, and then own fields apart from each other."""

Path = tuple[str, ...]
"""Steps to a field: `f:name` into an object, `k:{"name":"c"}` to an element of a keyed list."""

_SERVER_FIELDS = ("apiVersion", "kind", "metadata", "status")
_OWNED_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")


def apply(live: Object, applied: Object, schema: Schema, *, manager: str, force: bool, moment: datetime) -> Object:
    """The object after `manager` applied `applied` to `live`.

    Raises:
        ApiError: 409 that names each field which another manager applied with another value.
    """
    owners, own = _owners(live), (manager, "Apply")
    wanted = dict(_leaves(_owned_part(applied), schema))
    present = dict(_leaves(_owned_part(live), schema))
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
    for path in given_up:
        if not any(path in paths for paths in owners.values()):
            _remove(result, path)
    return _with_owners(result, owners, applied.get("apiVersion", ""), moment)


def release_changed(old: Object, new: Object, schema: Schema, *, manager: str = "") -> Object:
    """Give the fields that an ordinary update changed from the managers that owned them to the one that updated."""
    owners = _owners(old)
    if not owners or _owners(new) != owners:  # an apply, which sets the owners itself
        return new
    before = dict(_leaves(_owned_part(old), schema))
    after = dict(_leaves(_owned_part(new), schema))
    kept = {m: {p for p in paths if before.get(p) == after.get(p)} for m, paths in owners.items()}
    if kept == owners:
        return new
    taken = {path for paths in owners.values() for path in paths if path in after and before.get(path) != after[path]}
    if manager and taken:
        kept[(manager, "Update")] = kept.get((manager, "Update"), set()) | taken
    return _with_owners(new, kept, new.get("apiVersion", ""), times.now())


def _conflicts(fights: list[tuple[Manager, Path]], version: str) -> ApiError:
    def shown(manager: Manager) -> str:
        return f'"{manager[0]}" using {version}' if manager[1] == "Update" else f'"{manager[0]}"'

    fights = sorted(fights)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {shown(m)}", "field": _dotted(p)}
        for m, p in fights
    ]
    if len(fights) == 1:
        listed = f"conflict with {shown(fights[0][0])}: {_dotted(fights[0][1])}"
    else:
        listed = "conflicts with " + "\n".join(f"{shown(m)}:\n- {_dotted(p)}" for m, p in fights)
    noun = "conflict" if len(fights) == 1 else "conflicts"
    return ApiError(409, "Conflict", f"Apply failed with {len(fights)} {noun}: {listed}", {"causes": causes})


def _dotted(path: Path) -> str:
    shown = ""
    for step in path:
        if step.startswith("f:"):
            shown += f".{step[2:]}"
        else:
            keys = ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(step[2:]).items())
            shown += f"[{keys}]"
    return shown


def _owned_part(obj: Object) -> Object:
    part = {key: value for key, value in obj.items() if key not in _SERVER_FIELDS}
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k in _OWNED_METADATA}
    return {**part, "metadata": metadata} if metadata else part


def _leaves(value: Any, schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    _, schema = resolve(schema)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, property_schema(schema, key), (*path, f"f:{key}"))
    elif isinstance(value, list) and schema.get("x-kubernetes-list-type") == "map":
        for item in value:
            yield from _leaves(item, schema.get("items", {}), (*path, _list_key(item, schema)))
    else:
        yield path, value


_DEFAULT_KEYS = {"protocol": "TCP"}
"""Keys of lists that have a default: an element without it is the same as the stored one, which has it."""


def _list_key(item: Object, schema: Schema) -> str:
    given = {**_DEFAULT_KEYS, **item}
    keys = {key: given[key] for key in schema["x-kubernetes-list-map-keys"] if key in given}
    return "k:" + json.dumps(keys, separators=(",", ":"), sort_keys=True)


def _merge(live: Any, applied: Any, schema: Schema) -> Any:
    _, schema = resolve(schema)
    if isinstance(applied, dict):
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
    return copy.deepcopy(applied)


def _remove(obj: Any, path: Path) -> None:
    """Delete one leaf in place; branches that may be shared with the live object are copied."""
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(obj, dict) and step[2:] in obj:
        if not rest:
            del obj[step[2:]]
            return
        obj[step[2:]] = copy.copy(obj[step[2:]])
        _remove(obj[step[2:]], rest)
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


def _owners(obj: Object) -> dict[Manager, set[Path]]:
    entries = obj.get("metadata", {}).get("managedFields") or []
    return {(e["manager"], e.get("operation", "")): set(_paths(e.get("fieldsV1", {}))) for e in entries}


def _paths(fields: Object, path: Path = ()) -> Iterator[Path]:
    if not fields and path:
        yield path
    for step, inner in fields.items():
        yield from _paths(inner, (*path, step))


def _with_owners(obj: Object, owners: dict[Manager, set[Path]], api_version: str, moment: datetime) -> Object:
    entries = []
    for (manager, operation), paths in owners.items():
        fields: Object = {}
        for path in sorted(paths):
            place = fields
            for step in path:
                place = place.setdefault(step, {})
        if fields:
            entries.append(
                {
                    "manager": manager,
                    "operation": operation,
                    "apiVersion": api_version,
                    "time": times.seconds(moment),
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }
            )
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": {**metadata, "managedFields": entries} if entries else metadata}
