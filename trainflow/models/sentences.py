"""What is wrong with a document, in sentences that name the field: for run specs and for configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError


def sentences(invalid: ValidationError, *, whole: str, in_words: Mapping[str, str]) -> list[str]:
    """One sentence a fault.

    Args:
        invalid: What pydantic found.
        whole: What to call the document when no field is at fault.
        in_words: What each of the models' patterns asks for.
    """
    return [
        f"{_field(error['loc']) or whole}: {_reason(error, in_words)}." for error in invalid.errors(include_url=False)
    ]


def _field(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location if part != "[key]")


def _reason(error: Any, in_words: Mapping[str, str]) -> str:
    kind, context, given = error["type"], error.get("ctx", {}), error.get("input")
    if kind == "missing":
        return "this field is missing; add it"
    if kind == "extra_forbidden":
        return "there is no such field; remove it or correct its name"
    if kind == "literal_error":
        return f"must be {context['expected']}, got {given!r}"
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}, got {given!r}"
    if kind == "string_pattern_mismatch":
        return f"{in_words[context['pattern']]}, got {given!r}"
    if kind == "value_error":
        return str(context["error"]).rstrip(".")
    message = str(error["msg"]).removeprefix("Input ").removeprefix("Value ").rstrip(".")
    return f"{message[0].lower()}{message[1:]}, got {given!r}"
