"""What the server refuses in a label selector (apimachinery, pkg/apis/meta/v1/validation: ValidateLabelSelector)."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import FieldError, Object, bad_value, forbidden_field, required
from kubetwin.model.names import label_value, qualified_name, validate_labels


def selector_faults(selector: Object | None, path: str) -> Iterator[FieldError]:
    """Faults of labels and requirements; a missing selector has none."""
    if not selector:
        return
    yield from validate_labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for place, requirement in enumerate(selector.get("matchExpressions") or []):
        yield from _requirement(requirement, f"{path}.matchExpressions[{place}]")


def _requirement(requirement: Object, path: str) -> Iterator[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{path}.values", detail)
    else:
        yield bad_value(f"{path}.operator", operator, "not a valid selector operator")
    if fault := qualified_name(requirement.get("key", "")):
        yield bad_value(f"{path}.key", requirement.get("key", ""), fault)
    for place, value in enumerate(values):
        if fault := label_value(value):
            yield bad_value(f"{path}.values[{place}]", value, fault)
