"""The form of a request by the published model of its service: types, required fields, limits.

botocore sends no request without a required field or of another type, so moto 5.2.5 does not expect one and ends with
an exception of Python. AWS answers SerializationException to JSON that cannot be read and ValidationException to a body
that lacks a field. Services with other protocols have codes of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.model import OperationModel, Shape

from local.aws.request_limits import inner_place, validation_message, violations

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


INVALID_PARAMETERS: Mapping[str, str] = {
    "iam": "ValidationError",
    "sts": "ValidationError",
    "cloudformation": "ValidationError",
    "sns": "ValidationError",
    "ec2": "MissingParameter",
    "lambda": "ValidationException",
    "scheduler": "ValidationException",
    "pipes": "ValidationException",
    "eks": "InvalidParameterException",
}
"""Services that read queries or paths, and their code for parameters that break their model (API references, 'Common
errors'). S3 is not among them: moto checks its documents itself."""

NO_ARN, FEWEST_PARTS = "InvalidParameter", 6


def given_parameters(response: Any) -> dict[str, Any]:
    """Parameters of a request's query or form, and of its body. Those of its path are in `response.uri_match`.

    Args:
        response: moto's object for a request.
    """
    given: dict[str, Any] = {name: values[0] for name, values in response.querystring.items() if values}
    if response.automated_parameter_parsing:
        given |= response.params
    elif response.raw_body:
        try:
            body = json.loads(response.raw_body)
        except ValueError:
            body = None
        given |= body if isinstance(body, dict) else {}
    return given


def parameter_error(service: str, operation: OperationModel, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Code and message about parameters that break the model of their operation; None for others.

    Args:
        service: The service's name in botocore, one of `INVALID_PARAMETERS`.
        operation: The operation.
        given: The parameters, read from the request.
    """
    shape = operation.input_shape
    if shape is None:
        return None
    if service == "ec2":  # its model has no limits
        missing = next((name for name in shape.required_members if given.get(name) is None), None)
        if missing is None:
            return None
        return INVALID_PARAMETERS[service], f"The request must contain the parameter {missing}"
    if found := validation_message([*_missing(shape, given, ""), *violations(shape, given, patterns=True)]):
        return INVALID_PARAMETERS[service], found
    return _arn_error(operation.name, given) if service == "sns" else None


def _arn_error(operation: str, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """SNS's refusal of a text that is not an ARN, in the words of the service."""
    for name, value in given.items():
        if name.endswith("Arn") and isinstance(value, str) and value.count(":") < FEWEST_PARTS - 1:
            parts = value.count(":") + 1
            said = f"Invalid parameter: {name} Reason: An ARN must have at least {FEWEST_PARTS} elements, not {parts}"
            return NO_ARN, said
    if operation == "Publish" and not any(given.get(name) for name in ("TopicArn", "TargetArn", "PhoneNumber")):
        return NO_ARN, "Invalid parameter: TopicArn or TargetArn Reason: no value for required parameter"
    return None


def _wrong_types(shape: Any, value: Any, place: str) -> Iterator[str]:
    """Each value of another type than that of the model."""
    if shape is None or value is None:
        return
    types = TYPES.get(shape.type_name, (object,))
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        yield f"The value at '{place}' is not of type {shape.type_name}."
        return
    for member, part, name in _parts(shape, value):
        yield from _wrong_types(member, part, inner_place(place, name))


def _missing(shape: Any, value: Any, place: str) -> Iterator[str]:
    """Each required field that is missing from a value of the right types."""
    if shape is None or value is None:
        return
    if shape.type_name == "structure":
        for name in shape.required_members:
            if value.get(name) is None:
                at = inner_place(place, name)
                yield f"Value null at '{at}' failed to satisfy constraint: Member must not be null"
    for member, part, name in _parts(shape, value):
        yield from _missing(member, part, inner_place(place, name))


def _parts(shape: Any, value: Any) -> Iterator[tuple[Any, Any, str]]:
    """The values inside of a value, with their shapes and names."""
    if shape.type_name == "structure":
        yield from ((member, value.get(name), name) for name, member in shape.members.items())
    elif shape.type_name == "map":
        yield from ((shape.value, part, name) for name, part in value.items())
    elif shape.type_name == "list":
        yield from ((shape.member, part, f"{number}.member") for number, part in enumerate(value, start=1))
