"""Sentences about problems in a document that name the field: for run specs and for configurations."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

LONGEST_QUOTATION = 100
"""Characters of a value, or of a name that the document gives, that a sentence quotes."""

LONGEST_REASON = 600
"""Characters of a reason, which may quote several values."""

MAX_SENTENCES = 10
"""Faults that are described; of more, the number."""

CLOSE = 0.7
"""Likeness of a name that may have been meant, of 1 for the same: one wrong letter in four."""

EXPECTED: Mapping[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping of fields",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_type": "a whole number",
    "list_type": "a list",
    "string_type": "text",
    "tuple_type": "a list",
}
"""Expected values, by pydantic's name of the error."""

NEEDS_QUOTES = "; put it in quotes"


def sentences(
    invalid: ValidationError, *, model: type[BaseModel], whole: str, in_words: Mapping[str, str]
) -> list[str]:
    """One sentence a fault.

    Args:
        invalid: What pydantic found.
        model: The model of the document, for names that an unknown field may have meant.
        whole: What to call the document when no field is at fault.
        in_words: What each of the models' patterns asks for.
    """
    found = []
    errors = invalid.errors(include_url=False)
    for error in errors[:MAX_SENTENCES]:
        reason = shortened(_reason(error, model, in_words), LONGEST_REASON)
        found.append(f"{_field(error['loc']) or whole}: {reason}{'' if reason.endswith('?') else '.'}")
    if len(errors) > MAX_SENTENCES:
        found.append(f"{len(errors) - MAX_SENTENCES} more faults follow.")
    return found


def shortened(text: object, longest: int = LONGEST_QUOTATION) -> str:
    """A text with its middle left out if it is long: what is wrong is mostly said at an end."""
    whole = str(text)
    if len(whole) <= longest:
        return whole
    half = (longest - 3) // 2
    return f"{whole[:half]} … {whole[-half:]}"


def _field(location: tuple[int | str, ...]) -> str:
    return ".".join(shortened(part) for part in location if part != "[key]")


def _reason(error: Any, model: type[BaseModel], in_words: Mapping[str, str]) -> str:
    kind, context, given = error["type"], error.get("ctx", {}), shortened(repr(error.get("input")))
    if kind == "missing":
        return "this field is missing; add it"
    if kind == "extra_forbidden":
        return f"there is no such field; {_meant(error['loc'], model)}"
    if kind == "literal_error":
        return f"must be {context['expected']}, got {given}"
    if kind in LIMITS:
        words, limit = LIMITS[kind]
        return f"must be {words} {context[limit]}, got {given}"
    if kind in ("string_too_short", "too_short") and context["min_length"] == 1:
        return "must not be empty"
    if kind in ("too_short", "too_long"):
        limit = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return f"must have {limit} entries, got {context['actual_length']}"
    if kind in ("string_too_short", "string_too_long"):
        limit = f"at least {context['min_length']}" if "min_length" in context else f"at most {context['max_length']}"
        return f"must have {limit} characters, got {given}"
    if kind == "model_type":
        return "must be a mapping of fields"  # without what was given, which may be a secret
    if kind == "string_pattern_mismatch":
        return f"{in_words[context['pattern']]}, got {given}"
    if kind == "value_error":
        return str(context["error"]).rstrip(".")
    if kind in EXPECTED:
        is_plain = isinstance(error.get("input"), int | float)  # a number or true, where a text was meant
        return f"must be {EXPECTED[kind]}, got {given}{NEEDS_QUOTES if kind == 'string_type' and is_plain else ''}"
    message = str(error["msg"]).removeprefix("Input ").removeprefix("Value ").rstrip(".")
    return f"{message[0].lower()}{message[1:]}, got {given}"


LIMITS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""Words for a limit, and its name in pydantic's context, by pydantic's name of the error."""


def _meant(location: Sequence[int | str], model: type[BaseModel]) -> str:
    """The nearest name of a field that the place has, or else one of its sections; what to do without one."""
    *outer, name = location
    here = _models_at(outer, [model])
    below = {
        inner: f"{section}.{inner}"
        for each in here
        for section, field in each.model_fields.items()
        for found in _models_in(field.annotation)
        for inner in found.model_fields
    }
    for known in ({field: field for each in here for field in each.model_fields}, below):
        near = difflib.get_close_matches(str(name)[:LONGEST_QUOTATION], known, n=1, cutoff=CLOSE)
        if near:
            return f"did you mean '{known[near[0]]}'?"
    return "remove it or correct its name"


def _models_at(location: Sequence[int | str], models: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """Models that a place in a document may have.

    Args:
        location: Names and indices that lead to the place. Keys of mappings, indices, and the names that pydantic gives
            the members of a union lead to no other model.
        models: Models of the place where the location begins.
    """
    for part in location:
        fields = [each.model_fields[part] for each in models if isinstance(part, str) and part in each.model_fields]
        if fields:
            models = [inner for field in fields for inner in _models_in(field.annotation)]
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
