from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubetwin.node.expansion import expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)2", "12"),
        ("$(NOPE)", "$(NOPE)"),
        ("$$(A)", "$(A)"),
        ("$(A)2$(NOPE)$$(A)", "12$(NOPE)$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_a_value_is_not_expanded_a_second_time() -> None:
    assert expand("$(A)", {"A": "$(B)", "B": "x"}) == "$(B)"


@given(st.text().filter(lambda text: "$" not in text))
def test_text_without_a_dollar_stays_as_it_is(text: str) -> None:
    assert expand(text, {"A": "1"}) == text
