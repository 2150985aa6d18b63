"""Replaces parts of moto while a server of the twin runs, and puts them back when it stops: other users of moto in the
same process, such as tests, get moto as it is."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

_ABSENT = object()

_undo: list[Callable[[], None]] = []

_inherited: set[tuple[type, str]] = set()
"""Classes and the attributes that they inherited before these were replaced."""


class ReplacedTooLateError(RuntimeError):
    """A class is changed after one of its subclasses, which has kept the attribute as it was before."""


def replace(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a class or module until `put_back`; an inherited one is set only on this class.

    Raises:
        ReplacedTooLateError: If a subclass that inherited the attribute has a replacement already: its replacement
            would hide this one, so that, for example, requests to one service are no longer judged.
    """
    _refuse_if_hidden(owner, name)
    before = vars(owner).get(name, _ABSENT)

    def undo() -> None:
        if before is _ABSENT:
            delattr(owner, name)
            _inherited.discard((owner, name))
        else:
            setattr(owner, name, before)

    if before is _ABSENT and isinstance(owner, type):
        _inherited.add((owner, name))
    setattr(owner, name, value)
    _undo.append(undo)


def _refuse_if_hidden(owner: Any, name: str) -> None:
    for subclass, attribute in _inherited:
        if attribute == name and isinstance(owner, type) and owner in subclass.__mro__[1:]:
            raise ReplacedTooLateError(
                f"{subclass.__name__}.{name} was replaced before {owner.__name__}.{name} and would hide it. "
                f"Replace {owner.__name__}.{name} first, or only that one."
            )


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
