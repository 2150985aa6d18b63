"""Label and field selectors: parsing with the server's own complaints, and matching."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubetwin.model.names import label_value, qualified_name

_TOKEN = re.compile(r"\s*(==|!=|[()!,=<>]|[^\s()!,=<>]+)")

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}


class BadSelector(ValueError):
    """The selector does not parse; the message is the API server's."""


@dataclass(frozen=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        (bound,) = self.values
        if value is None or not re.fullmatch(r"[+-]?\d+", value):
            return False
        return int(value) > int(bound) if self.operator == "gt" else int(value) < int(bound)


@dataclass(frozen=True)
class LabelSelector:
    """All requirements have to hold; none holds for everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        return all(requirement.matches(labels or {}) for requirement in self.requirements)

    @property
    def required_values(self) -> list[tuple[str, str]]:
        """Labels that every matching object has, each with its only possible value."""
        return [
            (requirement.key, value)
            for requirement in self.requirements
            if requirement.operator == "in" and len(requirement.values) == 1
            for value in requirement.values
        ]


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def requirement(self) -> Requirement:
        if self.peek() == "!":
            self.take()
            return Requirement(self.key(), "!")
        key = self.key()
        operator = self.peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self.take()
        if operator in ("in", "notin"):
            return _checked(Requirement(key, operator, frozenset(self.value_set())))
        if operator in ("=", "==", "!="):
            return _checked(Requirement(key, "notin" if operator == "!=" else "in", frozenset([self.value()])))
        if operator in ("<", ">"):
            return Requirement(key, "gt" if operator == ">" else "lt", frozenset([self.number()]))
        raise BadSelector(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def key(self) -> str:
        key = self.take()
        if not key or _is_special(key):
            raise BadSelector(f"unable to parse requirement: found '{key}', expected: identifier")
        if fault := qualified_name(key):
            raise BadSelector(f'unable to parse requirement: <nil>: Invalid value: "{key}": {fault}')
        return key

    def value(self) -> str:
        if self.peek() in ("", ","):
            return ""
        value = self.take()
        if _is_special(value):
            raise BadSelector(f"unable to parse requirement: found '{value}', expected: identifier")
        return value

    def number(self) -> str:
        value = self.take()
        if not re.fullmatch(r"[+-]?\d+", value):
            raise BadSelector(
                f"unable to parse requirement: values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, "
                "the value must be an integer"
            )
        return value

    def value_set(self) -> list[str]:
        opening = self.take()
        if opening != "(":
            raise BadSelector(f"unable to parse requirement: found '{opening}' expected: '('")
        if _is_special(self.peek(), but=(",", ")")) or not self.peek():
            expected = "',', ')' or identifier"
            raise BadSelector(f"unable to parse requirement: found '{self.peek()}', expected: {expected}")
        values = []
        while True:
            value = "" if self.peek() in (",", ")") else self.take()
            if _is_special(value) or (not value and not self.peek()):
                raise BadSelector(f"unable to parse requirement: found '{value}', expected: ',', or identifier")
            values.append(value)
            separator = self.peek()
            if separator not in (",", ")"):
                raise BadSelector(f"unable to parse requirement: found '{separator}', expected: ',' or ')'")
            self.take()
            if separator == ")":
                return values


def _is_special(token: str, *, but: tuple[str, ...] = ()) -> bool:
    return bool(re.fullmatch(r"[()!,=<>]+", token)) and token not in but


def _checked(requirement: Requirement) -> Requirement:
    """Refuse values that no label can have."""
    for place, value in enumerate(sorted(requirement.values)):
        if fault := label_value(value):
            path = f"values[{place}][{requirement.key}]"
            raise BadSelector(f'unable to parse requirement: {path}: Invalid value: "{value}": {fault}')
    return requirement


def parse_label_selector(text: str) -> LabelSelector:
    """A selector in kubectl's notation (`a=b,c in (d,e),!f`).

    Raises:
        BadSelector: If it does not parse, with the API server's message.
    """
    parser = _Parser(text)
    requirements: list[Requirement] = []
    while parser.peek():
        if re.fullmatch(r"[(),=<>]|==|!=", parser.peek()):
            raise BadSelector(f"found '{parser.peek()}', expected: !, identifier, or 'end of string'")
        requirements.append(parser.requirement())
        separator = parser.take()
        if separator not in ("", ","):
            raise BadSelector(f"found '{separator}', expected: ',' or 'end of string'")
        if separator == "," and not parser.peek():
            raise BadSelector("found '', expected: identifier after ','")
    return LabelSelector(tuple(requirements))


def label_selector_of(selector: Mapping[str, Any] | None) -> LabelSelector:
    """The selector that an object carries (`matchLabels`, `matchExpressions`)."""
    selector = selector or {}
    requirements = [
        Requirement(key, "in", frozenset([value])) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    return LabelSelector((*requirements, *requirements_of(selector.get("matchExpressions"))))


def requirements_of(expressions: Sequence[Mapping[str, Any]] | None) -> tuple[Requirement, ...]:
    """The requirements that an object lists, on labels or on fields of a node."""
    return tuple(
        Requirement(each["key"], _OPERATORS[each["operator"]], frozenset(each.get("values") or []))
        for each in expressions or ()
    )


@dataclass(frozen=True)
class FieldSelector:
    """Conditions on single fields: `(path, value, whether it must be equal)`."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        return all((field_value(obj, path) == value) == equal for path, value, equal in self.terms)

    def required_value(self, path: str) -> str | None:
        """The value that the selector requires at `path`; None if it requires none."""
        return next((value for term, value, equal in self.terms if term == path and equal), None)


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """A scalar field as text; absent is empty."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def parse_field_selector(text: str, known: Sequence[str]) -> FieldSelector:
    """A field selector (`status.phase=Failed,metadata.name!=a`).

    Args:
        known: Paths that this resource can be selected by.

    Raises:
        BadSelector: If it does not parse, with the API server's message.
    """
    terms = []
    for part in filter(None, text.split(",")):
        matched = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
        if matched is None:
            raise BadSelector(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = matched.groups()
        if path not in known:
            raise BadSelector(_unknown_field(path, known))
        terms.append((path, value, operator != "!="))
    return FieldSelector(tuple(terms))


def _unknown_field(path: str, known: Sequence[str]) -> str:
    if len(known) > 2:  # the message differs for kinds with selectors of their own
        return f"field label not supported: {path}"
    listed = ", ".join(f'"{name}"' for name in known)
    return f'"{path}" is not a known field selector: only {listed}'
