"""Hostile inputs for parsers: valid inputs with a few faults in them, and the number of them that a test tries.

A parser of what comes from outside returns a value for any input, or raises one of the errors that it documents.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

EXAMPLES = (pytest.param(500), pytest.param(10_000, marks=pytest.mark.slow))
"""Inputs of a test in the fast suites and among the slow proofs: `@pytest.mark.parametrize("examples", EXAMPLES)`."""

TOKENS = (
    *(
        "",
        "\0",
        "\n",
        "\r",
        "\ufeff",
        "\u2028",
        "\ud800",
        "é",
        "٣",
        "²",
        "💥",
        "\x1b[31m",
        " " * 50,
        "%s",
        "{}",
        "..",
        "/",
    ),
    *("-1", "0", "1e400", "nan", "inf", "1" * 400, "9" * 5000, "Infinity", "true", "null", "2026-02-30T25:61:61Z"),
    *("[" * 4096, "{" * 500, '{"a":' * 800, "]", "}", '"', "'", "\\", ":", ",", "|", "&a", "*a", "<<: ", "!!python/x"),
    *("9999-12-31T23:59:59+14:00", "0001-01-01T00:00:00-14:00", "Feb 31", "a" * 10_000),
)
"""Pieces that parsers stumble over."""

LONGEST_MESSAGE = 12_000
"""Characters of an error's message: ten faults, each with its field and what was given in part."""

SCALARS: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7.5, -0.0, float("nan"), float("inf"), 1e308, 2**31, 2**32 - 2, 2**63, 10**18),
    *(10**400, -(10**400), "", "a", "0", "UP", "RUNNING", *TOKENS),
)
"""Values of every kind and range that JSON has, Python's own additions to it included."""

NAMES = ("number", "set", "a", "", "0", "\0")

SEEDS = st.integers(0, 2**64 - 1)
"""One draw for an input: drawing each of its faults would take ten times as long as most parsers do."""


def damaged_texts(*valid: str) -> SearchStrategy[str]:
    """Valid texts in which up to three pieces are replaced, removed or repeated."""
    return SEEDS.map(lambda seed: _damaged_text(Random(seed), valid))


def damaged_bytes(*valid: str) -> SearchStrategy[bytes]:
    """The same as bytes, sometimes not of UTF-8."""

    def made(seed: int) -> bytes:
        random = Random(seed)
        content = _damaged_text(random, valid).encode(errors="surrogatepass")
        return content + random.randbytes(random.choice((0, 0, 0, 9)))

    return SEEDS.map(made)


def damaged_documents(*valid: Any) -> SearchStrategy[Any]:
    """Valid documents in which up to three values, at any depth, are other values or are missing."""
    return SEEDS.map(lambda seed: _damaged_document(Random(seed), valid))


def _damaged_text(random: Random, valid: Sequence[str]) -> str:
    text = random.choice(valid)
    for _ in range(random.randrange(4)):
        start = random.randint(0, len(text))
        end = min(len(text), start + random.choice((0, 1, 1, 2, 5, 20)))
        pieces = (random.choice(TOKENS), text[start:end] * 2, chr(random.randrange(0x250)), str(random.randrange(100)))
        text = f"{text[:start]}{random.choice(pieces)}{text[end:]}"
    return text


def _damaged_document(random: Random, valid: Sequence[Any]) -> Any:
    document = copy.deepcopy(random.choice(valid))
    for _ in range(random.randrange(4)):
        places = list(_places(document))
        if not places or random.randrange(50) == 0:
            return _value(random)
        holder, key = random.choice(places)
        if random.randrange(4) == 0:
            del holder[key]
        else:
            holder[key] = _value(random)
    return document


def _value(random: Random, depth: int = 0) -> Any:
    match random.randrange(4) if depth < 3 else 0:
        case 1:
            return [_value(random, depth + 1) for _ in range(random.randrange(3))]
        case 2:
            return {random.choice(NAMES): _value(random, depth + 1) for _ in range(random.randrange(3))}
    return random.choice(SCALARS)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def require_total(
    parse: Callable[[Any], object],
    inputs: SearchStrategy[Any],
    *,
    examples: int,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
) -> None:
    """Require that a parser answers every input, or raises one of these errors in a message of bounded length."""

    @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def answers(given_input: Any) -> None:
        try:
            parse(given_input)
        except errors as error:
            assert 0 < len(str(error)) <= LONGEST_MESSAGE

    answers()
