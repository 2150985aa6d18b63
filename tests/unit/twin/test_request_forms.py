"""A request's JSON has the types and the required fields that the model of its service states."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.aws.request_forms import INCOMPLETE, UNREADABLE, form_error
from local.aws.request_limits import operation_model

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def error(service: str, operation: str, body: Any) -> tuple[str, str] | None:
    model = operation_model(service, operation)
    assert model is not None
    return form_error(model.input_shape, body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.mark.parametrize("body", [b"no", b"[]", b"3", b'"x"', b"{", b"\xff", b"[" * 100_000, b'{"a":' * 5_000])
def test_a_body_that_is_not_an_object_cannot_be_read(body: bytes) -> None:
    found = error("stepfunctions", "DescribeExecution", body)
    assert found is not None and found[0] == UNREADABLE


@pytest.mark.parametrize(
    ("service", "operation", "fields", "place"),
    [
        ("stepfunctions", "DescribeExecution", {"executionArn": 3}, "executionArn"),
        ("stepfunctions", "ListExecutions", {"maxResults": True}, "maxResults"),
        ("events", "PutRule", {"Name": "a", "Tags": [{"Key": "a", "Value": []}]}, "tags.1.member.value"),
        ("dynamodb", "GetItem", {"TableName": "a", "Key": {"k": {"S": 1}}}, "key.k.s"),
        ("dynamodb", "GetItem", {"TableName": "a", "Key": []}, "key"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_place(service: str, operation: str, fields: Any, place: str) -> None:
    found = error(service, operation, fields)
    assert found is not None
    assert found[0] == UNREADABLE
    assert f"'{place}'" in found[1]


def test_each_missing_field_is_named() -> None:
    found = error("events", "PutTargets", {"Rule": "a", "Targets": [{"Id": "1"}, {"Arn": "a", "Id": None}]})
    assert found is not None
    assert found[0] == INCOMPLETE
    assert found[1].startswith("2 validation errors detected: Value null at 'targets.1.member.arn' failed")
    assert "'targets.2.member.id'" in found[1]


def test_fields_that_are_null_or_unknown_are_passed_over() -> None:
    fields: dict[str, Any] = {"executionArn": "arn:a", "includedData": None, "other": {"a": []}}
    assert error("stepfunctions", "DescribeExecution", fields) is None
    assert error("stepfunctions", "ListStateMachines", b"") is None


@given(JSON)
def test_any_json_has_an_answer(value: Any) -> None:
    for operation, name in (("GetItem", "Key"), ("TransactWriteItems", "TransactItems")):
        for body in (value, {"TableName": "a", name: value}):
            found = error("dynamodb", operation, body)
            assert found is None or found[0] in (UNREADABLE, INCOMPLETE)
