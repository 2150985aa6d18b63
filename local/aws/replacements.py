"""Replaces parts of moto while a server of the twin runs, and puts them back when it stops: other users of moto in the
same process, such as tests, get moto as it is."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

_ABSENT = object()

_undo: list[Callable[[], None]] = []


def replace(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a class or module until `put_back`; an inherited one is set only on this class."""
    before = vars(owner).get(name, _ABSENT)

    def undo() -> None:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    setattr(owner, name, value)
    _undo.append(undo)


def replace_item(mapping: MutableMapping[Any, Any], key: Any, value: Any) -> None:
    """Set an item of a mapping until `put_back`."""
    before = mapping.get(key, _ABSENT)

    def undo() -> None:
        if before is _ABSENT:
            mapping.pop(key, None)
        else:
            mapping[key] = before

    mapping[key] = value
    _undo.append(undo)


def put_back() -> None:
    """Undo every replacement, the last one first."""
    while _undo:
        _undo.pop()()
