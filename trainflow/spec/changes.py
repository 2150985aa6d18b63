"""Fields of a run spec that differ this time: a document that goes over it, or `field=value` on a command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainflow.errors import InvalidRunSpec
from trainflow.spec.document import decode

FLAT = ("workload.arguments", "workload.env")
"""Mappings of texts, whose names may hold dots: `workload.arguments.optimizer.lr` is the flag `--optimizer.lr`."""


def merged(document: Any, override: Any) -> Any:
    """Apply an override to a document, before anything is checked (RFC 7386, JSON merge patch).

    Mappings are merged field by field, everything else is replaced, and null takes a field away.

    Raises:
        InvalidRunSpec: If the override is not a mapping.
    """
    if not isinstance(override, Mapping):
        raise InvalidRunSpec("must be a mapping of the fields that differ, such as 'compute' or 'limits'.")
    return _merged(document, override)


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """The override for settings such as `workload.arguments.lr=1e-4`; a later one wins.

    Raises:
        InvalidRunSpec: If one of them is not a field and its value.
    """
    sides = (field_and_value(setting) for setting in settings)
    return changes_of_values((field, parsed_value(field, value)) for field, value in sides)


def changes_of_values(values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The override that gives fields, by their dotted names, these values."""
    changes: dict[str, Any] = {}
    for field, value in dict(values).items():
        # Not `_merged`, for which null removes a field already here.
        _put(changes, field_path(field), value)
    return changes


def field_and_value(setting: str) -> tuple[str, str]:
    """The two sides of `field=value`.

    Raises:
        InvalidRunSpec: If `=` or the field before it is missing.
    """
    field, equals, value = setting.partition("=")
    if not equals or not all(field.split(".")):
        raise InvalidRunSpec(f"'{setting}' must be a field and its value, such as workload.arguments.lr=1e-4.")
    return field, value


def parsed_value(field: str, text: str) -> Any:
    """A value as it would stand in the spec's file: `true`, `3`, `[a, b]` or `null`, which removes the field.

    Raises:
        InvalidRunSpec: If it is not YAML; the message names the field.
    """
    try:
        return decode(text.encode())
    except InvalidRunSpec as error:
        raise InvalidRunSpec(f"{field}: {str(error).replace('The file', 'The value')}") from None


def field_path(field: str) -> tuple[str, ...]:
    """The names that lead to a field."""
    for mapping in FLAT:
        if field.startswith(f"{mapping}."):
            return (*mapping.split("."), field.removeprefix(f"{mapping}."))
    return tuple(field.split("."))


def _put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    first, *rest = path
    if not rest:
        document[first] = value
        return
    inner = document.get(first)
    document[first] = inner = dict(inner) if isinstance(inner, Mapping) else {}
    _put(inner, tuple(rest), value)


def _merged(document: Any, override: Any) -> Any:
    if not isinstance(override, Mapping):
        return override
    base = dict(document) if isinstance(document, Mapping) else {}
    for name, value in override.items():
        if value is None:
            base.pop(name, None)
        else:
            base[name] = _merged(base.get(name), value)
    return base
