"""Structural schemas of custom resources: pruning, defaulting, validation. Pure.

Schemas are written as in OpenAPI and may refer to built-in types (`reference`). Messages are those of
apiextensions-apiserver (go-openapi/validate), as recorded.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kubetwin.model.errors import (
    FieldError,
    Object,
    bad_value,
    duplicate,
    not_supported,
    required,
    too_long,
    too_many,
)
from kubetwin.model.quantity import BadQuantity, parse_quantity
from kubetwin.model.schema import INT_OR_STRING, OBJECT_META, QUANTITY, Schema, fits, json_type, resolve

_FREE = "x-kubernetes-preserve-unknown-fields"


def reference(type_name: str) -> Schema:
    """A built-in type by its full name."""
    return {"$ref": f"#/$defs/{type_name}"}


def fields(*, needed: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object with these properties."""
    return {"type": "object", "properties": properties, "required": list(needed)}


def list_of(items: Schema, **rules: Any) -> Schema:
    return {"type": "array", "items": items, **rules}


def keyed_list(key: str, items: Schema, **rules: Any) -> Schema:
    """A list whose elements differ in one field."""
    return list_of(items, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}, **rules)


def map_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def text(*options: str, **rules: Any) -> Schema:
    """A string, one of the options if there are any."""
    return {"type": "string", **({"enum": list(options)} if options else {}), **rules}


def whole(**rules: Any) -> Schema:
    return {"type": "integer", **rules}


def flag(**rules: Any) -> Schema:
    return {"type": "boolean", **rules}


ANYTHING: Schema = {_FREE: True}
POD_TEMPLATE = fields(
    needed=("spec",),
    metadata=reference(OBJECT_META),
    spec=reference("io.k8s.api.core.v1.PodSpec"),
)


def prune(value: Any, schema: Schema, path: str = "") -> tuple[Any, list[str]]:
    """The value without unknown fields and nulls, and the paths of the unknown ones."""
    _, schema = resolve(schema)
    if isinstance(value, dict) and not schema.get(_FREE):
        return _prune_object(value, schema, path)
    if isinstance(value, list) and "items" in schema:
        pruned = [prune(item, schema["items"], f"{path}[{place}]") for place, item in enumerate(value)]
        return [item for item, _ in pruned], [name for _, names in pruned for name in names]
    return value, []


def _prune_object(value: Object, schema: Schema, path: str) -> tuple[Object, list[str]]:
    properties, extra = schema.get("properties"), schema.get("additionalProperties")
    if properties is None and not isinstance(extra, dict):
        return value, []
    kept: Object = {}
    unknown: list[str] = []
    for key, item in value.items():
        inner = (properties or {}).get(key, extra if isinstance(extra, dict) else None)
        place = f"{path}.{key}" if path else key
        if inner is None:
            unknown.append(place)
        elif item is not None:
            kept[key], below = prune(item, inner, place)
            unknown += below
    return kept, unknown


_BUILT_IN_DEFAULTS: dict[str, Object] = {"io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"}}
"""Defaults that definitions repeat for built-in types, where they are keys of a list (sigs.k8s.io/controller-tools)."""


def fill(value: Any, schema: Schema) -> None:
    """Set the schema's defaults of missing fields."""
    name, schema = resolve(schema)
    if isinstance(value, dict):
        for key, default in _BUILT_IN_DEFAULTS.get(name, {}).items():
            value.setdefault(key, default)
        for key, inner in (schema.get("properties") or {}).items():
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                fill(value[key], inner)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for item in value.values():
                fill(item, extra)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            fill(item, schema["items"])


def check(value: Any, schema: Schema, path: str = "") -> Iterator[FieldError]:
    """Faults of the value; the first fault of a place hides those below it."""
    name, schema = resolve(schema)
    if name in (QUANTITY, INT_OR_STRING):
        yield from _check_special(value, name, path)
        return
    wanted = json_type(schema)
    if wanted and not fits(value, wanted):
        found = _json_type(value)
        detail = f'{path} in body must be of type {wanted}: "{found}"'
        yield FieldError("FieldValueTypeInvalid", path, bad_value(path, found, detail).message)
        return
    yield from _check_rules(value, schema, path)
    if isinstance(value, dict):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from check(item, schema.get("items", {}), f"{path}[{place}]")


def _check_object(value: Object, schema: Schema, path: str) -> Iterator[FieldError]:
    prefix = f"{path}." if path else ""
    for key in schema.get("required") or []:
        if key not in value:
            yield required(f"{prefix}{key}")
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        inner = properties.get(key, extra if isinstance(extra, dict) else None)
        if inner is not None:
            yield from check(item, inner, f"{prefix}{key}")


def _check_rules(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    options = schema.get("enum")
    if options and value not in options:
        yield not_supported(path, value, options)
    if isinstance(value, list):
        yield from _check_list(value, schema, path)
    elif isinstance(value, str):
        yield from _check_text(value, schema, path)
    elif isinstance(value, int):
        yield from _check_number(value, schema, path)
    elif isinstance(value, dict) and len(value) < schema.get("minProperties", 0):
        detail = f"{path} in body should have at least {schema['minProperties']} properties"
        yield bad_value(path, len(value), detail)


def _check_list(value: list[Any], schema: Schema, path: str) -> Iterator[FieldError]:
    if len(value) < schema.get("minItems", 0):
        yield bad_value(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys and all(isinstance(item, dict) for item in value):
        found = [{key: item[key] for key in keys if key in item} for item in value]
        yield from (duplicate(f"{path}[{place}]", key) for place, key in enumerate(found) if key in found[:place])


def _check_text(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    if len(value) < schema.get("minLength", 0):
        yield bad_value(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield bad_value(path, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        detail = f'{path} in body must be of type date-time: "{value}"'
        yield FieldError("FieldValueTypeInvalid", path, bad_value(path, value, detail).message)


def _check_number(value: int, schema: Schema, path: str) -> Iterator[FieldError]:
    if "minimum" in schema and value < schema["minimum"]:
        yield bad_value(path, value, f"{path} in body should be greater than or equal to {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        yield bad_value(path, value, f"{path} in body should be less than or equal to {schema['maximum']}")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text


def _check_special(value: Any, name: str, path: str) -> Iterator[FieldError]:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        found = _json_type(value)
        detail = f'{path} in body must be of type integer,string: "{found}"'
        yield FieldError("FieldValueTypeInvalid", path, bad_value(path, found, detail).message)
    elif name == QUANTITY:
        try:
            parse_quantity(value)
        except BadQuantity:
            pattern = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"
            yield bad_value(path, value, f"{path} in body should match '{pattern}'")


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds: dict[type, str] = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")
