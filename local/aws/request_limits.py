"""Limits of requests that the published model of a service states: lengths, ranges and lists of values.

botocore checks few of them before it sends a request, and moto 5.2.5 checks few when it has received one. The words are
those of AWS's common ValidationException.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.exceptions import UnknownServiceError
from botocore.model import OperationModel, ServiceModel, Shape

NO_LIMIT = float("inf")


def operation_model(service: str, operation: str) -> OperationModel | None:
    """botocore's model of an operation; None for one that does not exist.

    Args:
        service: The service's name in botocore.
        operation: The name of the operation, or its name in Python or in a state machine's text.
    """
    name = operation if "_" in operation else xform_name(operation[:1].upper() + operation[1:])
    return _operations(service).get(name)


@cache
def service_model(service: str) -> ServiceModel:
    """botocore's model of a service.

    Raises:
        UnknownServiceError: If botocore does not know it.
    """
    return botocore.session.get_session().get_service_model(service)


@cache
def _operations(service: str) -> dict[str, OperationModel]:
    try:
        model = service_model(service)
    except UnknownServiceError:
        return {}
    return {xform_name(name): model.operation_model(name) for name in model.operation_names}


def violation(shape: Shape | None, request: Mapping[str, Any]) -> str | None:
    """The message about a request that breaks limits; None for one that keeps them.

    Args:
        shape: The input of the operation, in botocore's model.
        request: Its parameters.
    """
    return validation_message(violations(shape, request)) if shape is not None else None


def violations(shape: Shape, request: Mapping[str, Any], *, patterns: bool = False) -> Iterator[str]:
    """Each limit that a request breaks, in AWS's words.

    Args:
        shape: The input of the operation, in botocore's model.
        request: Its parameters.
        patterns: Whether the patterns of texts are limits: those of some services are only documentation.
    """
    return _violations(shape, request, "", patterns)


def validation_message(violations: Iterable[str]) -> str | None:
    """The message of a ValidationException about these violations; None without any."""
    found = list(violations)
    errors = "error" if len(found) == 1 else "errors"
    return f"{len(found)} validation {errors} detected: {'; '.join(found)}" if found else None


def inner_place(place: str, name: str) -> str:
    """Place of a field: AWS writes the names of fields with a small first letter, whatever the model."""
    return f"{place}.{name[:1].lower()}{name[1:]}".lstrip(".")


def _violations(shape: Any, value: Any, place: str, patterns: bool) -> Iterator[str]:
    if shape.type_name == "structure" and isinstance(value, Mapping):
        for name, member in shape.members.items():
            if value.get(name) is not None:
                yield from _violations(member, value[name], inner_place(place, name), patterns)
    elif shape.type_name == "list" and isinstance(value, list):
        yield from _outside(shape, len(value), "length", value, place)
        for number, item in enumerate(value, start=1):
            yield from _violations(shape.member, item, f"{place}.{number}.member", patterns)
    elif shape.type_name == "string" and isinstance(value, str):
        yield from _outside(shape, len(value), "length", value, place)
        if shape.enum and value not in shape.enum:
            yield _failed(value, place, f"satisfy enum value set: [{', '.join(shape.enum)}]")
        pattern = shape.metadata.get("pattern") if patterns else None
        if pattern is not None and not _matches(pattern, value):
            yield _failed(value, place, f"satisfy regular expression pattern: {pattern}")
    elif shape.type_name in ("integer", "long") and isinstance(value, int):
        yield from _outside(shape, value, "value", value, place)


def _matches(pattern: str, value: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is None or compiled.fullmatch(value) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """A pattern of a model; None for one with classes that only Java has."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None


def _outside(shape: Any, size: int, kind: str, value: Any, place: str) -> Iterator[str]:
    least, most = shape.metadata.get("min", -NO_LIMIT), shape.metadata.get("max", NO_LIMIT)
    if size > most:
        yield _failed(value, place, f"have {kind} less than or equal to {most}")
    if size < least:
        yield _failed(value, place, f"have {kind} greater than or equal to {least}")


def _failed(value: Any, place: str, constraint: str) -> str:
    shown = value if len(str(value)) <= SHOWN else f"{str(value)[:SHOWN]}…"
    return f"Value '{shown}' at '{place}' failed to satisfy constraint: Member must {constraint}"


SHOWN = 4_000
"""Characters of a value in a message, so that a definition of a megabyte does not come back."""
