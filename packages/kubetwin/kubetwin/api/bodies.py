"""Request bodies: JSON or YAML in, typed objects out, with the complaints of the server's decoder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from kubetwin.model import errors
from kubetwin.model.decoding import DecodeError, decode
from kubetwin.model.errors import Object, bad_request, bad_value
from kubetwin.model.protobuf import MEDIA_TYPE, parse_protobuf
from kubetwin.model.quantity import BadQuantity
from kubetwin.model.schema import OBJECT_META
from kubetwin.resources import Registry
from kubetwin.resources.resource import Resource
from kubetwin.resources.structural import prune

ACCEPTED = ("application/json", "application/yaml", MEDIA_TYPE)
_SHOWN_BYTES = 30
_LITERALS = {"n": "null", "t": "true", "f": "false"}


class NotJson(ValueError):
    """The text is not JSON; the message is that of Go's parser."""


def parse_json(data: bytes) -> Any:
    """Parse JSON.

    Raises:
        NotJson: If the text is not JSON; the message is Go's for the usual mistakes.
    """
    text = data.decode("utf-8", errors="replace")
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        raise NotJson(_go_words(text, fault.pos, fault.msg)) from None


def duplicate_fields(data: bytes) -> list[str]:
    """Paths of the fields that a JSON body has twice."""
    found = False

    def note(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]] | dict[str, Any]:
        nonlocal found
        made = dict(pairs)
        if len(made) == len(pairs) and not found:
            return made
        found = True
        return _Pairs(pairs)

    parsed = json.loads(data.decode("utf-8", errors="replace"), object_pairs_hook=note)
    return list(_repeated(parsed, "")) if found else []


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, with those that are repeated."""


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict | _Pairs):
        seen = set()
        for key, item in value.items() if isinstance(value, dict) else value:
            place = f"{path}.{key}" if path else key
            if key in seen:
                yield place
            seen.add(key)
            yield from _repeated(item, place)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _repeated(item, f"{path}[{place}]")


def _go_words(text: str, position: int, message: str) -> str:
    rest = text[position:].lstrip()
    if not rest:
        return "unexpected end of JSON input"
    if message.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    literal = _LITERALS.get(rest[0])
    if literal and message.startswith("Expecting value"):
        for got, wanted in zip(rest[1:], literal[1:], strict=False):
            if got != wanted:
                return f"invalid character '{got}' in literal {literal} (expecting '{wanted}')"
    places = {
        "Expecting property name": "looking for beginning of object key string",
        "Expecting ':'": "after object key",
        "Expecting ','": "after object key:value pair",
        "Extra data": "after top-level value",
    }
    where = next((go for python, go in places.items() if message.startswith(python)), "looking for beginning of value")
    return f"invalid character '{rest[0]}' {where}"


def parse_body(data: bytes, content_type: str, resource: Resource) -> Object:
    """The object in a body, as sent.

    Raises:
        ApiError: 400 or 415.
    """
    if content_type == MEDIA_TYPE:
        return _protobuf(data, resource)
    if content_type not in ("", *ACCEPTED):
        raise errors.unsupported_media_type(ACCEPTED)
    try:
        parsed = yaml.safe_load(data) if content_type == "application/yaml" else parse_json(data)
    except (NotJson, yaml.YAMLError) as fault:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; "
            f"json parse error: {fault} ({_shown(data)})"
        ) from None
    if not isinstance(parsed, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; "
            "json parse error: json: cannot unmarshal "
            f"{'array' if isinstance(parsed, list) else 'value'} into Go value of type struct"
        )
    return parsed


def _protobuf(data: bytes, resource: Resource) -> Object:
    if resource.custom:
        raise errors.unsupported_media_type(ACCEPTED[:2])
    try:
        return parse_protobuf(data)
    except ValueError as fault:
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {fault}") from None


def _shown(data: bytes) -> str:
    if not data:
        return "<empty>"
    part = data[:_SHOWN_BYTES]
    text = part.decode(errors="replace") if data.startswith(b"{") else part.hex()
    return f"{text} ..." if len(data) > _SHOWN_BYTES else text


def check_kind(obj: Object, resource: Resource, registry: Registry) -> None:
    """Refuse an object of another kind than the path is for; a missing kind is taken from the path.

    Raises:
        ApiError: 400.
    """
    if resource.custom:
        _check_custom_kind(obj, resource)
        return
    kind = obj.get("kind") or resource.kind
    version = obj.get("apiVersion") or resource.group_version
    if (kind, version) == (resource.kind, resource.group_version):
        return
    handled = f'{kind} in version "{version.rsplit("/", 1)[-1]}" cannot be handled as a {resource.kind}'
    if registry.by_kind(version, kind) is None:
        raise bad_request(f"{handled}: {not_registered(kind, version)}")
    raise bad_request(
        f"{handled}: converting ({version.rsplit('/', 1)[-1]}.{kind}) to "
        f"({resource.group or 'core'}.{resource.kind}): unknown conversion"
    )


def not_registered(kind: str, version: str) -> str:
    """Message of a server about an unknown kind."""
    return (
        f'no kind "{kind}" is registered for version "{version}" in scheme '
        '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'
    )


def _check_custom_kind(obj: Object, resource: Resource) -> None:
    """Check that a custom object has apiVersion and kind."""
    if not obj.get("kind"):
        shown = json.dumps(obj)
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): "
            f"Object 'Kind' is missing in '{shown}' ({_shown(shown.encode())})"
        )
    version = obj.get("apiVersion", "")
    if version != resource.group_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.group_version})"
        )
    if obj["kind"] != resource.kind:
        name = (obj.get("metadata") or {}).get("name", "")
        fault = bad_value("kind", obj["kind"], f"must be {resource.kind}")
        raise errors.invalid(obj["kind"], resource.group, name, [fault])


class BadBody(ValueError):
    """An object does not fit its type; the message is that of Go's decoder."""


def typed(obj: Object, resource: Resource) -> tuple[Object, list[str]]:
    """Fit an object to its type; returns the rest of it and the unknown fields.

    Raises:
        ApiError: 400 for a value of the wrong type.
    """
    try:
        return fitted(obj, resource)
    except BadBody as fault:
        raise _cannot_handle(resource, str(fault)) from None


def fitted(obj: Object, resource: Resource) -> tuple[Object, list[str]]:
    """As `typed`, for callers with words of their own.

    Raises:
        BadBody: For a value of the wrong type.
    """
    try:
        if resource.schema:
            return _fitted_custom(obj, resource)
        if not resource.type_name:
            return obj, []
        decoded = decode({**obj, "metadata": obj.get("metadata") or {}}, resource.type_name)
    except (DecodeError, BadQuantity) as fault:
        raise BadBody(str(fault)) from None
    return decoded.value, decoded.unknown


def _fitted_custom(obj: Object, resource: Resource) -> tuple[Object, list[str]]:
    """Only the metadata has a Go type; what is wrong elsewhere is found by the schema, later."""
    metadata = decode(obj.get("metadata") or {}, OBJECT_META)
    value, unknown = prune({**obj, "metadata": metadata.value}, resource.schema)
    return value, [*(f"metadata.{path}" for path in metadata.unknown), *unknown]


def check_unknown(unknown: list[str], resource: Resource, validation: str, duplicates: Sequence[str] = ()) -> list[str]:
    """Warnings for unknown and repeated fields; with `fieldValidation=Strict` they are refused.

    Raises:
        ApiError: 400.
    """
    texts = [f'duplicate field "{path}"' for path in duplicates] + [f'unknown field "{path}"' for path in unknown]
    if texts and validation == "Strict":
        raise _cannot_handle(resource, f"strict decoding error: {', '.join(texts)}")
    return [] if validation == "Ignore" else texts


def _cannot_handle(resource: Resource, why: str) -> errors.ApiError:
    return bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')
