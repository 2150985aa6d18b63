"""The form of a request in JSON: types and required fields, by the published model of the service.

botocore sends no request of another form, so moto 5.2.5 does not expect one and ends with an exception of Python. AWS
answers SerializationException to a body that cannot be read and ValidationException to one that lacks a field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.model import Shape

from local.aws.request_limits import validation_message

UNREADABLE = "SerializationException"
INCOMPLETE = "ValidationException"

TYPES: Mapping[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "long": (int, float),
    "float": (int, float, str),  # NaN and Infinity are texts
    "double": (int, float, str),
    "timestamp": (int, float, str),
}
"""Types of JSON for each type of a model."""


def form_error(shape: Shape | None, body: bytes | str) -> tuple[str, str] | None:
    """Code and message about a body of another form; None for one that can be read.

    Args:
        shape: The input of the operation, in botocore's model; None for an operation that the model lacks.
        body: The request's body. An empty one is an object without fields.
    """
    try:
        request = json.loads(body or "{}")
        if not isinstance(request, dict):
            return UNREADABLE, "Start of structure or map expected where it was not found."
        if wrong := next(_wrong_types(shape, request, ""), None):
            return UNREADABLE, wrong
        missing = validation_message(_missing(shape, request, ""))
    except (ValueError, RecursionError):
        return UNREADABLE, "The body of the request cannot be read as JSON."
    return (INCOMPLETE, missing) if missing is not None else None


def _wrong_types(shape: Any, value: Any, place: str) -> Iterator[str]:
    """Each value of another type than that of the model."""
    if shape is None or value is None:
        return
    types = TYPES.get(shape.type_name, (object,))
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        yield f"The value at '{place}' is not of type {shape.type_name}."
        return
    for member, part, name in _parts(shape, value):
        yield from _wrong_types(member, part, f"{place}.{name}".lstrip("."))


def _missing(shape: Any, value: Any, place: str) -> Iterator[str]:
    """Each required field that is missing from a value of the right types."""
    if shape is None or value is None:
        return
    if shape.type_name == "structure":
        for name in shape.required_members:
            if value.get(name) is None:
                at = f"{place}.{name}".lstrip(".")
                yield f"Value null at '{at}' failed to satisfy constraint: Member must not be null"
    for member, part, name in _parts(shape, value):
        yield from _missing(member, part, f"{place}.{name}".lstrip("."))


def _parts(shape: Any, value: Any) -> Iterator[tuple[Any, Any, str]]:
    """The values inside of a value, with their shapes and names."""
    if shape.type_name == "structure":
        yield from ((member, value.get(name), name) for name, member in shape.members.items())
    elif shape.type_name == "map":
        yield from ((shape.value, part, name) for name, part in value.items())
    elif shape.type_name == "list":
        yield from ((shape.member, part, f"{number}.member") for number, part in enumerate(value, start=1))
