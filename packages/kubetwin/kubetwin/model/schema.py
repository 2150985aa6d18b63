"""The types of Kubernetes v1.36's built-in objects, read from the JSON schemas that `kubernetes-validate` ships.

Only the one file of definitions is read (about 10 ms), at the first object that arrives; the package's validator
is not imported.
"""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

VERSION = "v1.36.0-local"
_PREFIX = "#/$defs/"

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"


@cache
def definitions() -> dict[str, Schema]:
    """Every type by its full name (`io.k8s.api.core.v1.Pod`)."""
    spec = importlib.util.find_spec("kubernetes_validate")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package kubernetes-validate is missing: install the requirements of kubetwin")
    folder = Path(spec.submodule_search_locations[0]) / "kubernetes-json-schema" / VERSION
    loaded: dict[str, Schema] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return loaded


def definition(name: str) -> Schema:
    return definitions()[name]


def resolve(schema: Schema) -> tuple[str, Schema]:
    """Follow a reference: the type's full name ("" when it is written in place) and its schema."""
    reference = schema.get("$ref", "")
    if not reference:
        return "", schema
    name = reference.removeprefix(_PREFIX)
    return name, definitions()[name]


def json_type(schema: Schema) -> str:
    """`object`, `array`, `string`, … ("" for anything); the schemas allow null everywhere."""
    kinds = schema.get("type", "")
    if isinstance(kinds, list):
        return next((str(kind) for kind in kinds if kind != "null"), "")
    return str(kinds)


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}


def fits(value: Any, kind: str) -> bool:
    """Whether a value is of a JSON type; every value is of one that is not known."""
    if isinstance(value, bool):
        return kind == "boolean" or kind not in _TYPES
    return isinstance(value, _TYPES.get(kind, (object,)))


def short_name(full_name: str) -> str:
    return full_name.rsplit(".", 1)[-1]


def property_schema(schema: Schema, key: str) -> Schema:
    """The schema of one field of an object: a property, or a map's values; empty if unknown."""
    properties = schema.get("properties") or {}
    if key in properties:
        found: Schema = properties[key]
        return found
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else {}
