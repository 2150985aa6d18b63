"""Hostile inputs for parsers: valid inputs with a few faults in them, and the number of them that a test tries.

A parser of what comes from outside returns a value for any input, or raises one of the errors that it documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

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

SCALARS: SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 2**31, 2**32 - 2, 2**63, 10**18, 10**400, -(10**400)]),
    st.floats(),
    st.sampled_from(TOKENS),
    st.text(max_size=20),
)

NAMES = st.text(max_size=5) | st.just("number")

VALUES: SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("number"), inner, max_size=3)
    ),
    max_leaves=5,
)
"""Any value of a JSON document."""


@st.composite
def damaged_texts(draw: DrawFn, *valid: str) -> str:
    """Valid texts in which up to three pieces are replaced, removed or repeated."""
    text = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 1, 1, 2, 5, 20])))
        piece = draw(st.sampled_from(TOKENS) | st.text(max_size=5) | st.just(text[start:end] * 2))
        text = f"{text[:start]}{piece}{text[end:]}"
    return text


def damaged_bytes(*valid: str) -> SearchStrategy[bytes]:
    """The same as bytes, sometimes not of UTF-8."""
    texts = damaged_texts(*valid).map(lambda text: text.encode(errors="surrogatepass"))
    return texts | st.tuples(texts, st.binary(max_size=9)).map(b"".join)


@st.composite
def damaged_documents(draw: DrawFn, *valid: Any) -> Any:
    """Valid documents in which up to three values, at any depth, are other values or are missing."""
    document = json.loads(json.dumps(draw(st.sampled_from(valid))))
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(document))
        if not places:
            return draw(VALUES)
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        if draw(st.integers(0, 3)) == 0:
            del holder[key]
        else:
            holder[key] = draw(VALUES)
    return document


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

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def answers(given_input: Any) -> None:
        try:
            parse(given_input)
        except errors as error:
            assert 0 < len(str(error)) <= LONGEST_MESSAGE

    answers()
