"""JSON patch (RFC 6902), merge patch (RFC 7396) and strategic merge patch, as functions from object to object."""

from __future__ import annotations

import copy
from typing import Any

from kubetwin.model.errors import Object
from kubetwin.model.schema import Schema, property_schema, resolve

_DIRECTIVES = ("$patch", "$retainKeys")


class PatchFailed(ValueError):
    """The patch cannot be applied to this object."""


def json_patch(obj: Object, operations: list[Any]) -> Object:
    """Apply a JSON patch.

    Raises:
        PatchFailed: If an operation is unknown, a path is missing or a test fails.
    """
    import jsonpatch

    try:
        patched: Object = jsonpatch.apply_patch(copy.deepcopy(obj), operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, KeyError, TypeError) as fault:
        raise PatchFailed(str(fault)) from fault
    return patched


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch: objects merge, null deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(target: Any, patch: Any, schema: Schema) -> Any:
    """Apply a strategic merge patch: lists that have a merge key merge by it.

    Args:
        target: The object (or part of one) as it is.
        patch: What shall change; `$patch: delete|replace`, `$deleteFromPrimitiveList/x` and
            `$setElementOrder/x` are understood (the last is ignored: order is kept).
        schema: The type, with its `x-kubernetes-patch-*` marks.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key not in _DIRECTIVES}
    result = dict(target) if isinstance(target, dict) else {}
    if patch.get("$patch") == "delete":
        return {}
    _, schema = resolve(schema)
    for key, value in patch.items():
        if key in _DIRECTIVES or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.split("/", 1)[1]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_field(result.get(key), value, property_schema(schema, key))
    return result


def _merge_field(current: Any, patch: Any, schema: Schema) -> Any:
    if not isinstance(patch, list):
        return strategic_merge(current, patch, schema)
    if "merge" not in schema.get("x-kubernetes-patch-strategy", ""):
        return copy.deepcopy(patch)
    merge_key = schema.get("x-kubernetes-patch-merge-key")
    if merge_key is None:
        return [*(current or []), *(item for item in patch if item not in (current or []))]
    return _merge_by_key(list(current or []), patch, merge_key, schema.get("items", {}))


def _merge_by_key(current: list[Any], patch: list[Any], key: str, items: Schema) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and key not in item for item in patch):
        return [copy.deepcopy(item) for item in patch if "$patch" not in item]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchFailed(f"map: {item} does not contain declared merge key: {key}")
        place = next((n for n, old in enumerate(current) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            current = [old for old in current if old.get(key) != item[key]]
        elif place is None:
            current.append(strategic_merge({}, item, items))
        else:
            current[place] = strategic_merge(current[place], item, items)
    return current
