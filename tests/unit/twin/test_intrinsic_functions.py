"""Intrinsic functions have the results that AWS was recorded to compute."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from local.aws.intrinsics import FUNCTIONS, IntrinsicFailure, InvalidCall, evaluate, parse
from tests.asl.data import Missing, Scope, Unsupported, called, value_at

FILE = yaml.safe_load(Path("tests/assets/aws/step_functions.yaml").read_text(encoding="utf-8"))
FACTS = [fact for group in FILE["functions"] for fact in group["facts"]]
INVALID = [call for group in FILE["invalid_calls"] for call in group["facts"]]


@pytest.mark.parametrize(("call", "document", "result"), FACTS, ids=[fact[0] for fact in FACTS])
def test_a_function_has_the_recorded_result(call: str, document: Any, result: Any) -> None:
    scope = Scope(document, {})
    found = evaluate(parse(call), lambda path: value_at(path, scope))
    assert json.dumps(found) == json.dumps(result)
    with contextlib.suppress(Unsupported):  # the second engine knows two functions
        assert called(call, scope) == result


@pytest.mark.parametrize("call", INVALID)
def test_a_call_that_aws_refuses_is_refused(call: str) -> None:
    with pytest.raises(InvalidCall):
        parse(call)


@pytest.mark.parametrize(
    "call",
    [
        "States.MathAdd($.none, 1)",
        "States.Format('{} {}', 1)",
        "States.ArrayGetItem($.list, 3)",
        "States.ArrayRange(1, 2, 0)",
        "States.ArrayPartition($.list, 0)",
        "States.StringToJson('{')",
        "States.Base64Decode('*')",
        "States.Hash('a', 'CRC')",
        "States.JsonMerge($.list, $.list, false)",
        "States.StringSplit(1, ',')",
        "States.MathRandom(2, 1)",
        "States.ArrayLength('a')",
    ],
)
def test_a_function_that_cannot_be_applied_is_an_intrinsic_failure(call: str) -> None:
    scope = Scope({"none": None, "list": [1, 2, 3]}, {})
    with pytest.raises(IntrinsicFailure):
        evaluate(parse(call), lambda path: value_at(path, scope))


NAMES = st.sampled_from(sorted(FUNCTIONS))
TEXTS = st.text(alphabet="aé'\\{}\",()$. \n1", max_size=8)


@given(name=NAMES, arguments=st.lists(TEXTS, max_size=3))
def test_every_text_is_a_call_with_a_result_or_is_refused(name: str, arguments: list[str]) -> None:
    with contextlib.suppress(InvalidCall, IntrinsicFailure, Missing):
        evaluate(parse(f"{name}({', '.join(arguments)})"), lambda _path: None)


@given(values=st.lists(st.text(alphabet="aé'\\{}\"\n", max_size=5), max_size=3))
def test_a_text_of_any_characters_can_be_written_as_a_literal(values: list[str]) -> None:
    literals = ["".join(f"\\{mark}" if mark in "'{}\\" else mark for mark in value) for value in values]
    call = f"States.Array({', '.join(quoted(literal) for literal in literals)})"
    assert evaluate(parse(call), lambda path: path) == values


def quoted(literal: str) -> str:
    return f"'{literal}'"
