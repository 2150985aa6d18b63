"""Decode JSON into a typed object as the server's Go structs do: report wrong types, drop unknown fields.

Messages follow encoding/json: `json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of
type string`.
"""

from __future__ import annotations

import string
import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubetwin.model.errors import Object
from kubetwin.model.quantity import parse_quantity
from kubetwin.model.schema import INT_OR_STRING, QUANTITY, Schema, definition, fits, json_type, resolve, short_name

_TIMES = ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime")
_FREE_FORM = (
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
)


_BASE64 = frozenset(string.ascii_letters + string.digits + "+/")


class DecodeError(ValueError):
    """A value does not fit its Go type."""


@dataclass
class Decoded:
    """The object without unknown fields and nulls, and the paths that were dropped."""

    value: Object
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Place:
    """Position of the decoder: the enclosing struct, the path for type errors, and the path with list indices."""

    struct: str
    path: str
    indexed: str

    def child(self, struct: str, key: str) -> _Place:
        dotted = f"{self.path}.{key}" if self.path else key
        return _Place(struct, dotted, f"{self.indexed}.{key}" if self.indexed else key)

    def item(self, index: int) -> _Place:
        return _Place(self.struct, self.path, f"{self.indexed}[{index}]")


def decode(value: Object, type_name: str) -> Decoded:
    """Fit `value` to the named type.

    Raises:
        DecodeError: If a value has a wrong JSON type; names the first.
        BadQuantity: If a quantity is malformed.
    """
    unknown: list[str] = []
    result = _object(value, short_name(type_name), definition(type_name), _Place("", "", ""), unknown)
    return Decoded(result, unknown)


def _fail(value: Any, place: _Place, go_type: str) -> DecodeError:
    what = f"Go struct field {place.struct}.{place.path}" if place.path else "Go value"
    return DecodeError(f"json: cannot unmarshal {json_kind(value)} into {what} of type {go_type}")


def json_kind(value: Any) -> str:
    """The kind of a JSON value, as Go's decoder names it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return f"number {value}"
    kinds: dict[type, str] = {int: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _go_type(name: str, schema: Schema) -> str:
    if name:
        package, _, short = name.rpartition(".")
        return f"{package.rsplit('.', 1)[-1]}.{short}"
    kind = json_type(schema)
    if kind == "array":
        return f"[]{_go_type(*resolve(schema.get('items', {})))}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"map[string]{_go_type(*resolve(inner))}" if isinstance(inner, dict) else "map[string]interface {}"
    if kind == "integer":
        return str(schema.get("format", "int64"))
    if kind == "number":
        return "float64"
    return {"boolean": "bool", "string": "string"}.get(kind, "interface {}")


def _value(value: Any, schema: Schema, place: _Place, unknown: list[str]) -> Any:
    name, resolved = resolve(schema)
    if name == QUANTITY:
        parse_quantity(value)
        return value if isinstance(value, str) else str(value)
    if name in _TIMES:
        return _time(value, place)
    if name in _FREE_FORM or (name == INT_OR_STRING and isinstance(value, str | int)):
        return value
    kind = json_type(resolved)
    if kind == "object" or "properties" in resolved:
        if not isinstance(value, dict):
            raise _fail(value, place, _go_type(name, resolved))
        return _object(value, short_name(name), resolved, place, unknown)
    if kind == "array":
        if not isinstance(value, list):
            raise _fail(value, place, _go_type(name, resolved))
        items = resolved.get("items", {})
        return [_value(item, items, place.item(n), unknown) for n, item in enumerate(value)]
    return _scalar(value, kind, _go_type("", resolved), place, encoded=resolved.get("format") == "byte")


def _scalar(value: Any, kind: str, go_type: str, place: _Place, *, encoded: bool = False) -> Any:
    if not fits(value, kind):
        raise _fail(value, place, go_type)
    if encoded:
        _check_base64(value)
    return value


def _check_base64(text: str) -> None:
    """Refuse what Go's decoder of standard base64 refuses; it skips line ends only."""
    kept = [(place, letter) for place, letter in enumerate(text) if letter not in "\r\n"]
    body = len("".join(letter for _, letter in kept).rstrip("="))
    padding, rest = len(kept) - body, body % 4
    missing = 0 if rest == 0 else 4 - rest
    wrong = next((place for place, letter in kept[:body] if letter not in _BASE64), None)
    if wrong is None and padding != missing:
        if padding == 0:
            wrong = len(text) - rest
        else:
            wrong = len(text) if padding < missing else len(text) - (padding - missing)
    elif wrong is None and rest == 1:
        wrong = len(text) - padding
    if wrong is not None:
        raise DecodeError(f"illegal base64 data at input byte {wrong}")


def _time(value: Any, place: _Place) -> Any:
    if not isinstance(value, str):
        raise _fail(value, place, "string")
    try:
        datetime.fromisoformat(value)
    except ValueError:
        layout = "2006-01-02T15:04:05Z07:00"
        raise DecodeError(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"') from None
    return value


def _object(value: Object, struct: str, schema: Schema, place: _Place, unknown: list[str]) -> Object:
    properties = schema.get("properties")
    if properties is None:
        return _map(value, schema, place, unknown)
    result: Object = {}
    for key, item in value.items():
        inner = place.child(struct, key)
        if key not in properties:
            unknown.append(inner.indexed)
        elif item is not None:
            # The parser makes a text of its own of each key; all objects share one of them instead.
            result[sys.intern(key)] = _value(item, properties[key], inner, unknown)
    return result


def _map(value: Object, schema: Schema, place: _Place, unknown: list[str]) -> Object:
    extra = schema.get("additionalProperties")
    if not isinstance(extra, dict):
        return value
    # A map's values carry the place of the map: Go names the field, not the key.
    return {
        key: _value(item, extra, _Place(place.struct, place.path, f"{place.indexed}.{key}"), unknown)
        for key, item in value.items()
        if item is not None
    }
