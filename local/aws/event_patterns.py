"""Event patterns of EventBridge: their grammar, and the events that they match. Pure.

moto 5.2.5 accepts most invalid patterns and raises while it delivers. Sources: EventBridge user guide, 'Creating event
patterns'; documentation of aws/event-ruler; answers recorded on AWS (`tests/assets/aws/event_patterns.yaml`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from operator import eq, ge, gt, le, lt
from typing import Any

Pattern = Mapping[str, Any]
Test = Callable[[Any], bool]

MAX_WILDCARDS = 5
"""Wildcard characters of one value. AWS measures how often they can match; six were refused as too complex."""


class InvalidPattern(ValueError):
    """A pattern that EventBridge refuses; the message gives the reason in its words."""


@dataclass(frozen=True)
class Matcher:
    """One alternative of a field's values."""

    test: Test
    is_absence: bool = False
    """Whether it matches a field that the event lacks."""


@dataclass(frozen=True)
class Field:
    """A value of an event, by the names that lead to it."""

    path: str
    value: Any
    items: Mapping[str, int]
    """Number of the item in each list of objects on the way: fields of one pattern match within one item."""


Alternative = Mapping[str, Sequence[Matcher]]
"""Matchers of each field. All fields have to match."""


@lru_cache(maxsize=256)
def parse(text: str) -> tuple[Alternative, ...]:
    """Read a pattern; it matches what one of its alternatives matches.

    Raises:
        InvalidPattern: If EventBridge refuses it.
    """
    try:
        pattern = json.loads(text)
    except ValueError as error:
        raise InvalidPattern(str(error)) from None
    if not isinstance(pattern, dict):
        raise InvalidPattern("Filter is not an object")
    return tuple(_alternatives(pattern, ""))


def matches(text: str, event: Mapping[str, Any]) -> bool:
    """Whether an event matches a pattern.

    Raises:
        InvalidPattern: If EventBridge refuses the pattern.
    """
    fields: dict[str, list[Field]] = {}
    for field in _fields(event, "", {}):
        fields.setdefault(field.path, []).append(field)
    return any(_holds(list(alternative.items()), fields, {}) for alternative in parse(text))


def _holds(
    rules: Sequence[tuple[str, Sequence[Matcher]]], fields: Mapping[str, list[Field]], items: Mapping[str, int]
) -> bool:
    """Whether all rules match fields of the same items."""
    if not rules:
        return True
    (path, matchers), *rest = rules
    found = fields.get(path, [])
    if not found and any(matcher.is_absence for matcher in matchers):
        return _holds(rest, fields, items)
    return any(
        _holds(rest, fields, {**items, **field.items})
        for field in found
        if all(items.get(place, number) == number for place, number in field.items.items())
        and any(matcher.test(field.value) for matcher in matchers if not matcher.is_absence)
    )


def _fields(value: Any, path: str, items: Mapping[str, int]) -> Iterator[Field]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _fields(each, f"{path}.{name}" if path else name, items)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            is_value = not isinstance(item, Mapping | list)
            yield from _fields(item, path, items if is_value else {**items, f"{path}#{len(items)}": number})
    else:
        yield Field(path, value, items)


def _alternatives(pattern: Pattern, path: str) -> Iterator[Alternative]:
    if not pattern:
        raise InvalidPattern("Empty objects are not allowed")
    choices: list[list[Alternative]] = []
    for name, value in pattern.items():
        place = f"{path}.{name}" if path else name
        if name == "$or" and isinstance(value, list):
            choices.append([each for item in value for each in _alternatives(_object(item, name), path)])
        elif isinstance(value, Mapping):
            choices.append(list(_alternatives(value, place)))
        elif isinstance(value, list):
            if not value:
                raise InvalidPattern("Empty arrays are not allowed")
            choices.append([{place: [_matcher(item) for item in value]}])
        else:
            raise InvalidPattern(f'"{name}" must be an object or an array')
    for chosen in itertools.product(*choices):
        yield {place: matchers for alternative in chosen for place, matchers in alternative.items()}


def _object(value: Any, name: str) -> Pattern:
    if not isinstance(value, Mapping):
        raise InvalidPattern(f'"{name}" must be an array of objects')
    return value


def _matcher(item: Any) -> Matcher:
    if not isinstance(item, Mapping):
        return Matcher(_equals(item))
    if len(item) != 1:
        raise InvalidPattern("Only one key allowed in match expression")
    ((kind, value),) = item.items()
    if kind == "exists":
        if not isinstance(value, bool):
            raise InvalidPattern("exists match pattern must be either true or false.")
        return Matcher(lambda _: True, is_absence=not value)
    if kind not in OPERATORS:
        raise InvalidPattern(f"Unrecognized match type {kind}")
    return Matcher(OPERATORS[kind](value))


def _equals(wanted: Any) -> Test:
    if isinstance(wanted, list):
        raise InvalidPattern("Match value must be String, number, true, false, or null")
    if _is_number(wanted):
        return lambda value: _is_number(value) and value == wanted
    return lambda value: type(value) is type(wanted) and value == wanted


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any, kind: str) -> str:
    if not isinstance(value, str):
        raise InvalidPattern(f"{kind} match pattern must be a string")
    return value


def _on_text(test: Callable[[str], bool]) -> Test:
    return lambda value: isinstance(value, str) and test(value)


def _affix(kind: str) -> Callable[[Any], Test]:
    """The operators `prefix` and `suffix`, which may ignore case."""

    def operator(value: Any) -> Test:
        folds = isinstance(value, Mapping) and value.keys() == {"equals-ignore-case"}
        wanted = _text(value["equals-ignore-case"] if folds else value, kind)
        return _on_text(
            lambda text: _has_affix(kind, text.lower(), wanted.lower()) if folds else _has_affix(kind, text, wanted)
        )

    return operator


def _has_affix(kind: str, text: str, wanted: str) -> bool:
    return text.startswith(wanted) if kind == "prefix" else text.endswith(wanted)


def _ignoring_case(value: Any) -> Test:
    wanted = _text(value, "equals-ignore-case").lower()
    return _on_text(lambda text: text.lower() == wanted)


def _wildcard(value: Any) -> Test:
    """`*` stands for any characters; a backslash makes `*` and itself literal."""
    parts = re.findall(r"\\[*\\]|[^\\]|\\", _text(value, "wildcard"), re.DOTALL)
    stars = [position for position, part in enumerate(parts) if part == "*"]
    for first, second in itertools.pairwise(stars):
        if second == first + 1:
            raise InvalidPattern(f"Consecutive wildcard characters at pos {first + 1}")
    if "\\" in parts:
        raise InvalidPattern("Invalid escape character at pos " + str(parts.index("\\")))
    if len(stars) > MAX_WILDCARDS:
        raise InvalidPattern(
            "Rule is too complex - try using fewer wildcard characters or fewer repeating character sequences after a "
            "wildcard character"
        )
    expression = re.compile("".join(".*" if part == "*" else re.escape(part[-1]) for part in parts), re.DOTALL)
    return _on_text(lambda text: expression.fullmatch(text) is not None)


COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "=": eq,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def _numeric(value: Any) -> Test:
    if not isinstance(value, list):
        raise InvalidPattern("Value of numeric must be an array.")
    pairs = list(itertools.zip_longest(value[::2], value[1::2]))
    for number, (operator, wanted) in enumerate(pairs):
        allowed = list(COMPARISONS) if number == 0 else ["<", "<="] if pairs[0][0] in (">", ">=") else []
        if operator not in allowed:
            raise InvalidPattern(f"Bad numeric range operator: {operator}")
        if not _is_number(wanted):
            raise InvalidPattern(f"Value of {operator} must be numeric")
    if not 1 <= len(pairs) <= 2:
        raise InvalidPattern("Invalid member in numeric match")
    if len(pairs) == 2 and pairs[0][1] >= pairs[1][1]:
        raise InvalidPattern("Bottom must be less than top")
    return lambda found: _is_number(found) and all(COMPARISONS[operator](found, wanted) for operator, wanted in pairs)


def _cidr(value: Any) -> Test:
    text = _text(value, "prefix")
    address, slash, bits = text.partition("/")
    if not slash:
        raise InvalidPattern("Malformed CIDR, one '/' required")
    if not bits.isdecimal():
        raise InvalidPattern("Malformed CIDR, mask bits must be an integer")
    try:
        ip_address(address)
    except ValueError:
        raise InvalidPattern(f"Nonstandard IP address: {address}") from None
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise InvalidPattern("Malformed CIDR, mask bits must be between 0 and the bits of the address") from None

    def is_within(found: str) -> bool:
        try:
            return ip_address(found) in network
        except ValueError:
            return False

    return _on_text(is_within)


def _anything_but(value: Any) -> Test:
    if isinstance(value, Mapping):
        if len(value) != 1 or not value.keys() <= NEGATED.keys():
            raise InvalidPattern("Value of anything-but must be an array or single string/number value.")
        ((kind, wanted),) = value.items()
        tests = NEGATED[kind](wanted)
    elif isinstance(value, list):
        tests = [_equals(each) for each in _plain_values(value)]
    elif isinstance(value, str) or _is_number(value):
        tests = [_equals(value)]
    else:
        raise InvalidPattern("Value of anything-but must be an array or single string/number value.")
    return lambda found: not any(test(found) for test in tests)


def _plain_values(values: list[Any]) -> list[Any]:
    if not values:
        raise InvalidPattern("Empty arrays are not allowed")
    if not all(isinstance(each, str) or _is_number(each) for each in values):
        raise InvalidPattern("Inside anything but list, start|null|boolean is not supported.")
    if len({isinstance(each, str) for each in values}) > 1:
        raise InvalidPattern(
            "Inside anything but list, either all values are number or string, mixed type is not supported"
        )
    return values


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _negated_affix(kind: str) -> Callable[[Any], list[Test]]:
    def tests(value: Any) -> list[Test]:
        if isinstance(value, Mapping):
            raise InvalidPattern("Value of anything-but must be an array or single string/number value.")
        wanted = [_text(each, "prefix/suffix") for each in _listed(value)]
        if "" in wanted or not wanted:
            raise InvalidPattern("Null prefix/suffix not allowed")
        return [_affix(kind)(each) for each in wanted]

    return tests


def _negated_ignoring_case(value: Any) -> list[Test]:
    if not all(isinstance(each, str) for each in _listed(value)):
        raise InvalidPattern("Inside anything-but/equals-ignore-case list, number|start|null|boolean is not supported.")
    return [_ignoring_case(each) for each in _listed(value)]


NEGATED: Mapping[str, Callable[[Any], Iterable[Test]]] = {
    "prefix": _negated_affix("prefix"),
    "suffix": _negated_affix("suffix"),
    "equals-ignore-case": _negated_ignoring_case,
    "wildcard": lambda value: [_wildcard(each) for each in _listed(value)],
}
"""Operators within `anything-but`."""

OPERATORS: Mapping[str, Callable[[Any], Test]] = {
    "prefix": _affix("prefix"),
    "suffix": _affix("suffix"),
    "equals-ignore-case": _ignoring_case,
    "wildcard": _wildcard,
    "numeric": _numeric,
    "cidr": _cidr,
    "anything-but": _anything_but,
}
"""Operators of a field's values, besides `exists`."""
