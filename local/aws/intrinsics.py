"""Intrinsic functions of the Amazon States Language: their grammar and their results. Pure.

moto 5.2.5 cuts arguments out of the definition's text, so that a quotation mark in a text ends it, and fails with
Python's errors. Sources: Step Functions developer guide, 'Intrinsic functions'; executions recorded on AWS
(`tests/assets/aws/step_functions.yaml`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import random
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_ITEMS = 1_000
"""Items that ArrayRange makes."""
MAX_CHARACTERS = 10_000
"""Characters of what Hash, Base64Encode and Base64Decode read."""


class InvalidCall(ValueError):
    """A text does not call an intrinsic function."""


class IntrinsicFailure(Exception):
    """A function cannot be applied to its arguments."""


@dataclass(frozen=True)
class Path:
    """A path among the arguments: of the input, the context object or a variable."""

    text: str


@dataclass(frozen=True)
class Literal:
    """A literal among the arguments; a text as it is written, with its backslashes."""

    value: Any
    is_text: bool = False


@dataclass(frozen=True)
class Call:
    """A call of an intrinsic function."""

    name: str
    arguments: tuple[Path | Literal | Call, ...]


_TOKEN = re.compile(
    r"\s*(?:(?P<name>States\.\w+)\s*\(|'(?P<text>(?:[^'\\]|\\['{}\\])*)'|(?P<path>\$(?:[^\s,()\[\]]|\[(?:'[^']*'|[^\]'])*\])*)"
    r"|(?P<json>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)|(?P<mark>[,)]))"
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse(text: str) -> Call:
    """Read a call.

    Raises:
        InvalidCall: If the text does not call a known function with the right number of arguments.
    """
    call, end = _argument(text, 0)
    if not isinstance(call, Call) or text[end:].strip():
        raise InvalidCall(text)
    return call


def _argument(text: str, position: int) -> tuple[Path | Literal | Call, int]:
    match = _TOKEN.match(text, position)
    if match is None or match["mark"]:
        raise InvalidCall(text)
    if match["name"]:
        return _call(text, match["name"], match.end())
    if match["path"]:
        return Path(match["path"]), match.end()
    if match["json"]:
        return Literal(json.loads(match["json"])), match.end()
    return Literal(match["text"], is_text=True), match.end()


def _call(text: str, name: str, position: int) -> tuple[Call, int]:
    arguments: list[Path | Literal | Call] = []
    closing = re.compile(r"\s*\)").match(text, position)
    while closing is None:
        argument, position = _argument(text, position)
        arguments.append(argument)
        mark = _TOKEN.match(text, position)
        if mark is None or not mark["mark"]:
            raise InvalidCall(text)
        position = mark.end()
        closing = mark if mark["mark"] == ")" else None
    fewest, most, _ = FUNCTIONS.get(name, (1, 0, None))
    if not fewest <= len(arguments) <= most:
        raise InvalidCall(text)
    return Call(name, tuple(arguments)), closing.end()


def evaluate(call: Call, value_at: Callable[[str], Any]) -> Any:
    """The result of a call.

    Args:
        call: The call.
        value_at: Returns the value of a path.

    Raises:
        IntrinsicFailure: If the function cannot be applied.
    """
    arguments = [_value(argument, value_at) for argument in call.arguments]
    if call.name == "States.Format":
        return _format(call.arguments[0], arguments)
    function = FUNCTIONS[call.name][2]
    assert function is not None  # noqa: S101  (all but States.Format have one)
    return function(*arguments)


def _value(argument: Path | Literal | Call, value_at: Callable[[str], Any]) -> Any:
    if isinstance(argument, Path):
        return value_at(argument.text)
    if isinstance(argument, Call):
        return evaluate(argument, value_at)
    return _ESCAPED.sub(r"\1", argument.value) if argument.is_text else argument.value


def _format(template: Path | Literal | Call, arguments: Sequence[Any]) -> str:
    text, *values = arguments
    _require(isinstance(text, str), "The template of States.Format is no text.")
    is_literal = isinstance(template, Literal)
    parts = re.findall(r"\\.|\{\}|[^\\{]+|[\\{]", template.value if isinstance(template, Literal) else text, re.DOTALL)
    _require(parts.count("{}") == len(values), f"States.Format has {len(values)} values for '{text}'.")
    rest = iter(values)
    return "".join(
        shown(next(rest)) if part == "{}" else _ESCAPED.sub(r"\1", part) if is_literal else part for part in parts
    )


def shown(value: Any) -> str:
    """A value as States.Format writes it: arrays and objects as Java prints them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={shown(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IntrinsicFailure(message)


def _rounded(value: Any) -> int:
    """A number rounded to the nearest whole one, halves upwards."""
    _require(isinstance(value, int | float) and not isinstance(value, bool), f"{json.dumps(value)} is no number.")
    return value if isinstance(value, int) else math.floor(value + 0.5)


def _array(value: Any) -> list[Any]:
    _require(isinstance(value, list), f"{json.dumps(value)} is no array.")
    return list(value)


def _text(value: Any, *, most: int | None = None) -> str:
    _require(isinstance(value, str), f"{json.dumps(value)} is no text.")
    _require(most is None or len(value) <= most, f"The text has more than {most} characters.")
    return str(value)


def _key(value: Any) -> str:
    """A key of a JSON value; those of 1 and true differ."""
    return json.dumps(value, sort_keys=True)


def _string_to_json(value: Any) -> Any:
    if not _text(value).strip():
        return None
    try:
        return json.loads(value)
    except ValueError as error:
        raise IntrinsicFailure(f"The text is not JSON: {error}.") from None


def _array_partition(value: Any, size: Any) -> list[Any]:
    items, number = _array(value), _rounded(size)
    _require(number > 0, "The size of a part is a whole number above 0.")
    return [items[start : start + number] for start in range(0, len(items), number)]


def _array_get_item(value: Any, index: Any) -> Any:
    items, number = _array(value), _rounded(index)
    _require(0 <= number < len(items), f"The array of {len(items)} items has no item {number}.")
    return items[number]


def _array_range(first: Any, last: Any, step: Any) -> list[int]:
    start, end, by = map(_rounded, (first, last, step))
    _require(by != 0, "The step is a whole number other than 0.")
    numbers = range(start, end + (1 if by > 0 else -1), by)
    _require(len(numbers) <= MAX_ITEMS, f"The array would have more than {MAX_ITEMS} items.")
    return list(numbers)


def _array_unique(value: Any) -> list[Any]:
    return list({_key(each): each for each in reversed(_array(value))}.values())[::-1]


def _math_random(start: Any, end: Any, seed: Any = None) -> int:
    first, last = _rounded(start), _rounded(end)
    _require(first < last, "The first number is below the last one.")
    return random.Random(seed).randrange(first, last)  # noqa: S311  (no secret)


def _base64_decode(value: Any) -> str:
    try:
        return base64.b64decode(_text(value, most=MAX_CHARACTERS), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise IntrinsicFailure(f"The text is not Base64: {error}.") from None


HASHES = {name: name.replace("-", "").lower() for name in ("MD5", "SHA-1", "SHA-256", "SHA-384", "SHA-512")}


def _hash(value: Any, algorithm: Any) -> str:
    _require(algorithm in HASHES, f"{json.dumps(algorithm)} is none of {', '.join(HASHES)}.")
    data = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return hashlib.new(HASHES[algorithm], _text(data, most=MAX_CHARACTERS).encode()).hexdigest()


def _json_merge(first: Any, second: Any, deep: Any) -> dict[str, Any]:
    _require(isinstance(first, dict) and isinstance(second, dict), "States.JsonMerge merges two objects.")
    _require(deep is False, "States.JsonMerge merges shallowly only: its third argument is false.")
    return {**first, **second}


def _string_split(value: Any, splitter: Any) -> list[str]:
    marks = re.escape(_text(splitter))
    return [part for part in re.split(f"[{marks}]", _text(value)) if part] if marks else [_text(value)]


FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Any] | None]] = {
    "States.Format": (1, 10_000, None),
    "States.StringToJson": (1, 1, _string_to_json),
    "States.JsonToString": (1, 1, lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)),
    "States.Array": (0, 10_000, lambda *values: list(values)),
    "States.ArrayPartition": (2, 2, _array_partition),
    "States.ArrayContains": (2, 2, lambda value, item: _key(item) in map(_key, _array(value))),
    "States.ArrayRange": (3, 3, _array_range),
    "States.ArrayGetItem": (2, 2, _array_get_item),
    "States.ArrayLength": (1, 1, lambda value: len(_array(value))),
    "States.ArrayUnique": (1, 1, _array_unique),
    "States.Base64Encode": (1, 1, lambda value: base64.b64encode(_text(value, most=MAX_CHARACTERS).encode()).decode()),
    "States.Base64Decode": (1, 1, _base64_decode),
    "States.Hash": (2, 2, _hash),
    "States.JsonMerge": (3, 3, _json_merge),
    "States.MathRandom": (2, 3, _math_random),
    "States.MathAdd": (2, 2, lambda first, second: _rounded(first) + _rounded(second)),
    "States.StringSplit": (2, 2, _string_split),
    "States.UUID": (0, 0, lambda: str(uuid.uuid4())),
}
"""Fewest and most arguments of each function, and what it computes."""
