"""Rules of a Choice state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.asl.data import RUNTIME, Missing, Scope, StatesError, Unsupported, value_at

Kind = Callable[[Any], Any]
"""Returns a value in the form in which it is compared; None if it is of another type."""


def _string(value: Any) -> Any:
    return value if isinstance(value, str) else None


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else None


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _timestamp(value: Any) -> Any:
    """A time of RFC 3339 with a capital T, and a Z or an offset."""
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        return None
    return datetime.fromisoformat(value)


COMPARISONS: Mapping[str, tuple[Kind, Callable[[Any, Any], bool]]] = {
    "StringEquals": (_string, lambda left, right: left == right),
    "BooleanEquals": (_boolean, lambda left, right: left is right),
    "NumericLessThan": (_number, lambda left, right: left < right),
    "NumericGreaterThan": (_number, lambda left, right: left > right),
    "NumericGreaterThanEquals": (_number, lambda left, right: left >= right),
    "TimestampGreaterThan": (_timestamp, lambda left, right: left > right),
}
"""Values of another type than the operator's are not equal, less or greater: the rule does not match (Amazon States
Language, 'Choice State')."""

TESTS: Mapping[str, Callable[[Any], bool]] = {
    "IsNull": lambda value: value is None,
    "IsNumeric": lambda value: _number(value) is not None,
}


def holds(rule: Mapping[str, Any], scope: Scope) -> bool:
    """Whether a rule holds. And and Or stop at the first rule that decides.

    Raises:
        StatesError: States.Runtime, if a path leads nowhere; IsPresent alone may ask for such a path.
        Unsupported: If the rule compares otherwise than the rules of our texts.
    """
    rule = {key: value for key, value in rule.items() if key not in {"Next", "Comment"}}
    if rule.keys() == {"And"}:
        return all(holds(each, scope) for each in rule["And"])
    if rule.keys() == {"Or"}:
        return any(holds(each, scope) for each in rule["Or"])
    operators = rule.keys() - {"Variable"}
    if "Variable" not in rule or len(operators) != 1:
        raise Unsupported(f"The rule {dict(rule)} is no comparison, And or Or.")
    (operator,) = operators
    if operator == "IsPresent":
        return _is_present(rule["Variable"], scope) is bool(rule[operator])
    value = _found(rule["Variable"], scope)
    if operator in TESTS:
        return TESTS[operator](value) is bool(rule[operator])
    name = operator.removesuffix("Path")
    if name not in COMPARISONS:
        raise Unsupported(f"The comparison {operator} is none that the state machines use.")
    other = _found(rule[operator], scope) if operator.endswith("Path") else rule[operator]
    kind, compare = COMPARISONS[name]
    left, right = kind(value), kind(other)
    return left is not None and right is not None and compare(left, right)


def _is_present(path: str, scope: Scope) -> bool:
    try:
        value_at(path, scope)
    except Missing:
        return False
    return True


def _found(path: str, scope: Scope) -> Any:
    try:
        return value_at(path, scope)
    except Missing:
        cause = f"Invalid path '{path}': The choice state's condition path references an invalid value."
        raise StatesError(RUNTIME, cause) from None
