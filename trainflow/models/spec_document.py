"""A run spec's file as the document that it encodes: any user may upload one, so nothing in it is trusted."""

from __future__ import annotations

import json
from typing import Any

import yaml

from trainflow.errors import InvalidRunSpec

MAX_BYTES = 128 * 1024
"""Largest spec: half of what a Step Functions state may pass on (256 KiB, service quotas), so that it fits a task's
input beside the other facts."""

MAX_DEPTH = 20
"""Mappings and lists inside each other; a spec has four. Parsers recurse, and a deep document would end them."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is installed: ten times as fast."""

FAULTS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What decoders raise over values that they cannot make: a 30th of February, a number without digits."""


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
            return json.loads(text)
        _require_plain(text)
        return yaml.load(text, Loader=LOADER)  # noqa: S506  (a safe loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidRunSpec(f"The file is not YAML{where}.") from None
    except FAULTS as error:
        raise InvalidRunSpec(f"The file is not {'JSON' if is_json else 'YAML'}: {error}.") from None


def _require_plain(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidRunSpec(f"The file uses an alias (*{event.anchor}); write the value out where it is needed.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise InvalidRunSpec(f"The file nests more than {MAX_DEPTH} mappings and lists; a run spec nests four.")


def canonical(document: Any) -> str:
    """The document as JSON that is the same however the file was laid out.

    Raises:
        InvalidRunSpec: If it holds what JSON has no words for, or is too large as JSON.
    """
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except FAULTS as error:
        raise InvalidRunSpec(
            f"The run spec holds a value that JSON cannot hold ({error}); put dates and the like in quotes."
        ) from None
    if size > MAX_BYTES:
        raise InvalidRunSpec(f"The run spec is larger than {MAX_BYTES // 1024} KiB, which none needs to be.")
    return text
