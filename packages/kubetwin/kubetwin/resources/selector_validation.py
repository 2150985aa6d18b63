"""Faults of a label selector that the server refuses (apimachinery, pkg/apis/meta/v1/validation:
ValidateLabelSelector)."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import FieldError, Object, bad_value, forbidden_field, required
from kubetwin.model.names import follows, label_value, qualified_name, validate_labels


def selector_faults(selector: Object | None, path: str) -> Iterator[FieldError]:
    """Faults of labels and requirements; a missing selector is allowed."""
    if not selector:
        return
    yield from validate_labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for place, requirement in enumerate(selector.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{place}]"
        yield from requirement_faults(requirement, where)
        for number, value in enumerate(requirement.get("values") or []):
            yield from follows(label_value, f"{where}.values[{number}]", value)


def requirement_faults(requirement: Object, path: str, *, compares: bool = False) -> Iterator[FieldError]:
    """Faults of the operator, the number of values and the key of a requirement.

    Args:
        requirement: Of labels.
        path: Its place in the object.
        compares: Whether the operators Gt and Lt exist, as in those of nodes.
    """
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{path}.values", detail)
    elif compares and operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield bad_value(f"{path}.operator", operator, "not a valid selector operator")
    yield from follows(qualified_name, f"{path}.key", requirement.get("key", ""))
