"""Paths, payload templates and intrinsic functions: what a state makes of the data that it is given."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_PAYLOAD_BYTES = 262_144
"""Input or result of a task, state or execution, as UTF-8 (Step Functions developer guide, 'Quotas')."""

RUNTIME = "States.Runtime"
DATA_LIMIT = "States.DataLimitExceeded"


class StatesError(Exception):
    """An error of the run, with a name that Retry and Catch compare."""

    def __init__(self, name: str, cause: str, *, is_terminal: bool = False) -> None:
        super().__init__(f"{name}: {cause}")
        self.name, self.cause = name, cause
        self.is_terminal = is_terminal
        """Whether no wildcard stands for it."""


class Unsupported(Exception):
    """The text uses what the interpreter does not know; it guesses nothing."""


class Missing(Exception):
    """A path leads nowhere."""


@dataclass
class Scope:
    """What paths are read from."""

    document: Any
    """What `$` stands for."""
    context: Mapping[str, Any]
    """What `$$` stands for."""
    variables: dict[str, Any] = field(default_factory=dict)


_PATH = re.compile(r"(?P<root>\$\$|\$[A-Za-z_]\w*|\$)(?P<steps>(?:\.[A-Za-z_]\w*|\['[^'\]]+'\]|\[\d+\])*)")
_STEP = re.compile(r"\.(\w+)|\['([^']+)'\]|\[(\d+)\]")


def value_at(path: str, scope: Scope) -> Any:
    """The value to which a reference path leads.

    Raises:
        Missing: If it leads nowhere.
        Unsupported: If it is no reference path.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise Unsupported(f"{path} is no reference path.")
    root = match["root"]
    if root == "$":
        found = scope.document
    elif root == "$$":
        found = scope.context
    elif root[1:] in scope.variables:
        found = scope.variables[root[1:]]
    else:
        raise Missing
    for name, quoted, index in _STEP.findall(match["steps"]):
        try:
            if index:
                found = found[int(index)] if isinstance(found, list) else {}[index]
            else:
                found = found[name or quoted] if isinstance(found, Mapping) else {}[name]
        except (KeyError, IndexError):
            raise Missing from None
    return found


def filled(template: Any, scope: Scope) -> Any:
    """A payload template, such as Parameters or Assign, with its values.

    Raises:
        StatesError: If a path leads nowhere. The guide names States.ParameterPathFailure; executions on AWS end with
            States.Runtime, which nothing catches.
    """
    if isinstance(template, list):
        return [filled(item, scope) for item in template]
    if not isinstance(template, dict):
        return template
    made: dict[str, Any] = {}
    for key, value in template.items():
        if key.endswith(".$"):
            made[key.removesuffix(".$")] = _computed(value, key, scope)
        else:
            made[key] = filled(value, scope)
    return made


def _computed(expression: Any, key: str, scope: Scope) -> Any:
    if not isinstance(expression, str):
        raise Unsupported(f"The value of '{key}' is no path.")
    try:
        if expression.startswith("$"):
            return value_at(expression, scope)
        return called(expression, scope)
    except Missing:
        cause = (
            f"The JSONPath '{expression}' specified for the field '{key}' could not be found in the input "
            f"'{text_of(scope.document)}'"
        )
        raise StatesError(RUNTIME, cause) from None


_CALL = re.compile(r"(States\.\w+)\((.*)\)", re.DOTALL)
_ARGUMENT = re.compile(
    r"\s*(?:'(?P<text>(?:[^'\\]|\\.)*)'|(?P<number>-?\d+)|(?P<path>\$[^,()\s]*))\s*(?:,|$)", re.DOTALL
)


def called(expression: str, scope: Scope) -> Any:
    """The result of an intrinsic function.

    Raises:
        StatesError: States.IntrinsicFailure, if the function cannot be evaluated.
        Unsupported: If it is another function than those that our texts use.
        Missing: If a path among its arguments leads nowhere.
    """
    match = _CALL.fullmatch(expression)
    if match is None:
        raise Unsupported(f"{expression} is neither a path nor a call of an intrinsic function.")
    name, arguments = match[1], _arguments(match[2], scope)
    if name == "States.Format":
        return _format(arguments)
    if name == "States.MathAdd":
        return _math_add(arguments)
    raise Unsupported(f"The intrinsic function {name} is none that the state machines use.")


def _arguments(text: str, scope: Scope) -> list[Any]:
    found: list[Any] = []
    position = 0
    while position < len(text):
        match = _ARGUMENT.match(text, position)
        if match is None:
            raise Unsupported(f"The arguments {text} are no strings, whole numbers and paths.")
        if match["text"] is not None:
            found.append(_Text(match["text"]))
        elif match["number"]:
            found.append(int(match["number"]))
        else:
            found.append(value_at(match["path"], scope))
        position = match.end()
    return found


class _Text(str):
    """A string as it stands in an expression, with its backslashes."""


def _format(arguments: list[Any]) -> str:
    """States.Format: strings and numbers in the places of `{}`; `\\'`, `\\{`, `\\}` and `\\\\` stand for themselves."""
    template, *values = arguments
    if not isinstance(template, _Text):
        raise Unsupported("The template of States.Format is no string.")
    parts = re.findall(r"\\.|\{\}|[^\\{]+|\{", template, re.DOTALL)
    if parts.count("{}") != len(values):
        raise StatesError("States.IntrinsicFailure", f"States.Format has {len(values)} values for '{template}'.")
    rest = iter(values)
    return "".join(_shown(next(rest)) if part == "{}" else re.sub(r"^\\", "", part) for part in parts)


def _shown(value: Any) -> str:
    """A value in a text; arrays and objects as Java prints them (recorded on AWS, docs/assumptions.md)."""
    if isinstance(value, list):
        return f"[{', '.join(_shown(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_shown(item)}" for key, item in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)


def _math_add(arguments: list[Any]) -> int:
    """States.MathAdd: the sum of two numbers, each rounded to the nearest whole one, halves upwards."""
    if len(arguments) != 2 or not all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in arguments
    ):
        raise StatesError("States.IntrinsicFailure", f"States.MathAdd adds two numbers, not {arguments}.")
    return sum(each if isinstance(each, int) else math.floor(each + 0.5) for each in arguments)


def text_of(value: Any) -> str:
    """JSON as it counts for the size of a payload."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def checked_size(value: Any, what: str, *, is_result: bool = False) -> Any:
    """The value, if it is no larger than a payload may be.

    Args:
        value: Parameters, the result of a task, or the output of a state.
        what: The name of the state, or the kind of the task.
        is_result: Whether it is the result of a task, whose error wildcards are for.

    Raises:
        StatesError: States.DataLimitExceeded.
    """
    if len(text_of(value).encode()) > MAX_PAYLOAD_BYTES:
        cause = "returned a result with a size exceeding the maximum number of bytes service limit."
        raise StatesError(DATA_LIMIT, f"The state/task '{what}' {cause}", is_terminal=not is_result)
    return value


def with_result(document: Any, result: Any, path: str | None) -> Any:
    """What ResultPath makes of a state's input and its result.

    Raises:
        StatesError: States.ResultPathMatchFailure, if the path cannot be applied to the input.
    """
    if path is None:
        return document
    if path == "$":
        return result
    steps = _STEP.findall(path[1:])
    if not path.startswith("$.") or "".join(f".{name}" for name, _, _ in steps) != path[1:]:
        raise Unsupported(f"ResultPath {path} is none of names alone.")
    made = json.loads(json.dumps(document))
    place = made
    for index, (name, _, _) in enumerate(steps):
        if not isinstance(place, dict):
            cause = f"Unable to apply step '{name}' to input '{text_of(document)}'"
            raise StatesError("States.ResultPathMatchFailure", cause)
        if index == len(steps) - 1:
            place[name] = result
        else:
            place = place.setdefault(name, {})
    return made
