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
        patch: What shall change, with the directives `$patch: delete|replace`, `$retainKeys`,
            `$deleteFromPrimitiveList/x` and `$setElementOrder/x`.
        schema: The type, with its `x-kubernetes-patch-*` marks.

    Raises:
        PatchFailed: If a directive is unknown, or an element lacks its merge key; the words are apimachinery's.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key not in _DIRECTIVES}
    if directive == "delete":
        return {}
    if directive is not None:
        raise PatchFailed(f"unknown patch type: {directive} in map: {go_text(patch)}")
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
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
    for key, order in patch.items():
        name = key.removeprefix("$setElementOrder/")
        if name != key and isinstance(result.get(name), list):
            merge_key = property_schema(schema, name).get("x-kubernetes-patch-merge-key")
            result[name] = _ordered(result[name], target.get(name) or [], order, merge_key)
    return result


def _ordered(merged: list[Any], before: list[Any], order: list[Any], merge_key: str | None) -> list[Any]:
    """Elements in the order that a patch names; those that it does not name keep their places among them."""

    def identity(item: Any) -> Any:
        return item.get(merge_key) if merge_key and isinstance(item, dict) else item

    wanted, places = [identity(item) for item in order], [identity(item) for item in before]
    named = sorted((i for i in merged if identity(i) in wanted), key=lambda item: wanted.index(identity(item)))
    others = [item for item in merged if identity(item) not in wanted]
    result = []
    while named and others:
        left, right = identity(others[0]), identity(named[0])
        both = left in places and right in places
        result.append(named.pop(0) if both and places.index(left) >= places.index(right) else others.pop(0))
    return [*result, *others, *named]


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
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        kept = [item for item in patch if not (item.get("$patch") == "replace" and key not in item)]
        return [{k: copy.deepcopy(v) for k, v in item.items() if k != "$patch"} for item in kept]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchFailed(f"map: {go_text(item)} does not contain declared merge key: {key}")
        place = next((n for n, old in enumerate(current) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            current = [old for old in current if old.get(key) != item[key]]
        elif place is None:
            current.append(strategic_merge({}, item, items))
        else:
            current[place] = strategic_merge(current[place], item, items)
    return current


def go_text(value: Any) -> str:
    """A JSON value as Go prints a map (`map[a:1 b:[x]]`)."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(item)}' for key, item in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(go_text(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)
