"""Errors with the API server's messages: an HTTP code with a `Status` body."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as JSON. Objects that the store hands out are shared: copy before changing one."""


PORTS = (1, 65535)
MOST_INT32 = 2**31 - 1
AT_LEAST_ZERO = "must be greater than or equal to 0"


@dataclass(frozen=True)
class GroupResource:
    """A resource's plural name and group, as messages show them (`jobs.batch`)."""

    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True)
class FieldError:
    """One fault of one field."""

    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Shown(str):
    """A value that is printed already, as its internal Go type."""


def show(value: Any) -> str:
    """A value as Go prints it in `Invalid value: …`."""
    if isinstance(value, Shown):
        return value
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return escaped(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def escaped(text: str) -> str:
    """JSON with the letters that Go's encoder escapes for the sake of HTML."""
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, f"Required value: {detail}" if detail else "Required value")


def bad_value(path: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, f"Invalid value: {show(value)}: {detail}")


def negative_numbers(path: str, numbers: Object, names: Iterable[str]) -> list[FieldError]:
    """Faults of the fields below zero (apimachinery, pkg/api/validation: ValidateNonnegativeField).

    Args:
        path: Place of the object that has the fields.
        numbers: The object; a missing field is allowed.
        names: The fields.
    """
    found = {name: numbers.get(name) or 0 for name in names}
    return [bad_value(f"{path}.{name}", found[name], AT_LEAST_ZERO) for name in found if found[name] < 0]


def bad_object(path: str, detail: str) -> FieldError:
    """A fault of an object that the message does not show."""
    return FieldError("FieldValueInvalid", path, f"Invalid value: {detail}")


def too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError("FieldValueTooMany", path, f"Too many: {count}: must have at most {most} items")


def quoted_list(options: Iterable[str]) -> str:
    """Words as Go prints a list of quoted strings (`["a" "b"]`)."""
    return f"[{' '.join(show(option) for option in options)}]"


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    options = ", ".join(f'"{option}"' for option in supported)
    return FieldError("FieldValueNotSupported", path, f"Unsupported value: {show(value)}: supported values: {options}")


def one_of(path: str, value: Any, supported: Collection[str]) -> list[FieldError]:
    """A fault if a value is not among the supported ones."""
    return [] if value in supported else [not_supported(path, value, supported)]


def in_range(path: str, number: int | None, least: int, most: int) -> list[FieldError]:
    """A fault if a number is out of its range; a missing number is allowed."""
    if number is None or least <= number <= most:
        return []
    return [bad_value(path, number, f"must be between {least} and {most}, inclusive")]


def forbidden_field(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, f"Forbidden: {detail}")


def too_long(path: str, most: int) -> FieldError:
    return FieldError("FieldValueTooLong", path, f"Too long: may not be more than {most} bytes")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", path, f"Duplicate value: {show(value)}")


def missing_reference(path: str, value: Any) -> FieldError:
    return FieldError("FieldValueNotFound", path, f"Not found: {show(value)}")


@dataclass
class ApiError(Exception):
    """An answer other than success. `body()` is the `Status` object that the client gets."""

    code: int
    reason: str
    message: str
    details: Object | None = None
    headers: dict[str, str] = field(default_factory=dict)
    metadata: Object = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def body(self) -> Object:
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return {**status, "code": self.code}


class PageNotFound(Exception):
    """The answer for a path of an unknown API group: plain text, without a `Status`."""


def _details(resource: GroupResource, name: str = "", kind: str = "") -> Object:
    details: Object = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return {**details, "kind": kind or resource.resource}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def denied(webhook: str, reason: str) -> ApiError:
    """The refusal of a validating webhook without a status code (apiserver, webhook/errors/statuserror.go)."""
    return ApiError(400, "", f'admission webhook "{webhook}" denied the request: {reason}')


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: GroupResource, name: str, detail: str) -> ApiError:
    subject = f'{resource} "{name}"' if name else str(resource)
    message = f"{subject} is forbidden: {detail}"
    return ApiError(403, "Forbidden", message, _details(resource, name))


def not_found(resource: GroupResource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', _details(resource, name))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def not_acceptable(available: Sequence[str]) -> ApiError:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(available)}"
    return ApiError(406, "NotAcceptable", message, {})


def already_exists(resource: GroupResource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', _details(resource, name))


def conflict(resource: GroupResource, name: str, detail: str = "", *, kind: str = "") -> ApiError:
    detail = detail or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {kind or resource} "{name}": {detail}'
    return ApiError(409, "Conflict", message, _details(resource, name, kind))


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """HTTP 422 that lists every fault; repeated ones are listed once, as Go's aggregate does."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    causes = [{"reason": e.reason, "message": e.message, "field": e.field} for e in errors]
    details = _details(GroupResource("", group), name, kind)
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {listed}', {**details, "causes": causes})


def internal_error(message: str) -> ApiError:
    return ApiError(500, "InternalError", message)
