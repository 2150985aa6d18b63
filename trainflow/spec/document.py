"""A run spec's file as the document that it encodes: any user may upload one, so nothing in it is trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import yaml

from trainflow.errors import InvalidRunSpec
from trainflow.spec.sentences import shortened

MAX_BYTES = 128 * 1024
"""Largest spec: half of what a Step Functions state may pass on (256 KiB, service quotas), so that it fits a task's
input beside the other facts."""

MAX_DEPTH = 20
"""Mappings and lists inside each other; a spec has four. Parsers recurse, and a deep document would end them."""

_TOO_DEEP = f"The run spec nests more than {MAX_DEPTH} mappings and lists; a run spec nests four."

_SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is installed: ten times as fast."""


class _Loader(_SAFE_LOADER):  # type: ignore[misc]
    """A safe loader that refuses a field that is there twice; YAML forbids it, and PyYAML takes the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        _require_unique(
            ((key.value, key.start_mark.line + 1) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        )
        mapping = super().construct_mapping(node, deep)
        for name in mapping:
            if not isinstance(name, str):
                raise InvalidRunSpec(
                    f"The file has a field named {shortened(name)} that YAML reads as no text, in the mapping at line "
                    f"{node.start_mark.line + 1}; put the name in quotes."
                )
        return mapping


FAULTS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions of decoders for invalid values: a 30th of February, a number without digits."""


def decode(content: bytes, *, is_json: bool = False) -> Any:
    """The document in a file's content.

    Anchors are refused in YAML: ten lines of them unfold to more than any memory holds.

    Raises:
        InvalidRunSpec: If the content is too large, no text, or neither YAML nor JSON.
    """
    if len(content) > MAX_BYTES:
        raise InvalidRunSpec(f"The file is larger than {MAX_BYTES // 1024} KiB, which no run spec needs to be.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRunSpec("The file is not text in UTF-8.") from None
    try:
        if is_json:
            document = json.loads(text, object_pairs_hook=_object)
        else:
            _require_no_alias(text)
            document = yaml.load(text, Loader=_Loader)  # noqa: S506  (a safe loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", None)
        raise InvalidRunSpec(f"The file is not YAML{where}{f': {shortened(reason)}' if reason else ''}.") from None
    except FAULTS as error:
        kind, hint = ("JSON", "correct it") if is_json else ("YAML", "correct it, or put a text in quotes")
        raise InvalidRunSpec(f"The file is not {kind}: {shortened(error)}; {hint}.") from None
    require_plain(document)
    return document


def require_plain(value: Any, path: str = "", *, depth: int = 0) -> None:
    """Refuse a document that is nested too deeply, or that contains a NUL character.

    No command line, variable, path or Kubernetes object can hold that character.

    Raises:
        InvalidRunSpec: If it is not; the message names the field.
    """
    if depth > MAX_DEPTH:
        raise InvalidRunSpec(_TOO_DEEP)
    if isinstance(value, str) and "\0" in value:
        where = f"{shortened(path)}: " if path else ""
        raise InvalidRunSpec(f"{where}must hold no NUL character, got {shortened(repr(value))}.")
    if isinstance(value, dict):
        for name, each in value.items():
            require_plain(name, path, depth=depth)
            require_plain(each, f"{path}.{name}" if path else str(name), depth=depth + 1)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            require_plain(each, f"{path}.{index}", depth=depth + 1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_unique((name, None) for name, _ in pairs)
    return dict(pairs)


def _require_unique(names: Iterable[tuple[str, int | None]]) -> None:
    seen: set[str] = set()
    for name, line in names:
        if name in seen:
            where = f", the second time at line {line}" if line else ""
            raise InvalidRunSpec(f"The file has the field {shortened(repr(name))} twice{where}; remove one of them.")
        seen.add(name)


def _require_no_alias(text: str) -> None:
    """Refuse aliases, and nesting that would exceed the parser's recursion limit."""
    depth = 0
    for event in yaml.parse(text, Loader=_SAFE_LOADER):
        if isinstance(event, yaml.AliasEvent):
            alias = shortened(f"*{event.anchor}")
            raise InvalidRunSpec(f"The file uses an alias ({alias}); write the value out where it is needed.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise InvalidRunSpec(_TOO_DEEP)


def _place_of_odd(value: Any, path: str = "") -> str:
    """Place of a value that JSON cannot represent, such as " at 'name'"; empty if unknown."""
    if path.count(".") > MAX_DEPTH:
        return ""
    if isinstance(value, dict):
        inner = ((each, f"{path}.{name}" if path else str(name)) for name, each in value.items())
    elif isinstance(value, list):
        inner = ((each, f"{path}.{index}") for index, each in enumerate(value))
    else:
        plain = value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        return "" if plain or not path else f" at '{shortened(path)}'"
    return next(filter(None, (_place_of_odd(each, place) for each, place in inner)), "")


def canonical(document: Any) -> str:
    """The document as JSON, independent of the file's layout.

    Raises:
        InvalidRunSpec: If JSON cannot represent a value, or if the JSON is too large.
    """
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except FAULTS as error:
        value = f"The run spec holds a value{_place_of_odd(document)} that JSON cannot hold ({shortened(error)})"
        raise InvalidRunSpec(f"{value}; put dates and the like in quotes.") from None
    if size > MAX_BYTES:
        raise InvalidRunSpec(f"The run spec is larger than {MAX_BYTES // 1024} KiB, which none needs to be.")
    return text
