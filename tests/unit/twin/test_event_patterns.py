"""EventBridge's patterns match, and are refused, as AWS was recorded to answer."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from local.aws.event_patterns import InvalidPattern, matches, parse

FACTS = yaml.safe_load(Path("tests/assets/aws/event_patterns.yaml").read_text(encoding="utf-8"))
FILES = [json.dumps(fact) for kind in ("matches", "refused") for fact in FACTS[kind]]


@pytest.mark.parametrize("fact", FACTS["matches"], ids=[fact["source"] for fact in FACTS["matches"]])
def test_a_pattern_matches_what_aws_was_recorded_to_match(fact: dict[str, Any]) -> None:
    assert matches(json.dumps(fact["pattern"]), fact["event"]) is fact["is"]


@pytest.mark.parametrize("fact", FACTS["refused"], ids=[fact["source"] for fact in FACTS["refused"]])
def test_an_invalid_pattern_is_refused_for_the_recorded_reason(fact: dict[str, Any]) -> None:
    with pytest.raises(InvalidPattern) as refused:
        parse(json.dumps(fact["pattern"]))
    assert str(refused.value).startswith(fact["reason"])


def test_the_facts_are_as_many_as_the_recordings() -> None:
    assert len(FILES) == len(set(FILES)) >= 100


def test_fields_of_one_pattern_match_within_one_item_of_a_list() -> None:
    pattern = json.dumps({"nodes": {"id": ["a"], "zone": ["z"]}})
    assert matches(pattern, {"nodes": [{"id": "b", "zone": "y"}, {"id": "a", "zone": "z"}]})
    assert not matches(pattern, {"nodes": [{"id": "a", "zone": "y"}, {"id": "b", "zone": "z"}]})


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(pattern=VALUES, event=st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_a_pattern_is_read_or_refused_and_never_anything_else(pattern: Any, event: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidPattern):
        assert matches(json.dumps(pattern), event) in (True, False)
