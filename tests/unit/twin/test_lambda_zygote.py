"""Errors of Lambda's runtime have the names that Lambda gives them (awslambdaric)."""

from __future__ import annotations

import pytest

from local.aws.lambda_zygote import RuntimeFailure, _described, _handler, _marshalled


@pytest.mark.parametrize(
    ("module", "attribute", "name"),
    [
        ("no_such_module", "lambda_handler", "Runtime.ImportModuleError"),
        ("json", "no_such_handler", "Runtime.HandlerNotFound"),
    ],
)
def test_a_missing_handler_has_lambdas_error(module: str, attribute: str, name: str) -> None:
    with pytest.raises(RuntimeFailure) as failure:
        _handler(module, attribute)
    assert _described(failure.value, "id")["errorType"] == name


def test_a_result_that_is_no_json_has_lambdas_error() -> None:
    with pytest.raises(RuntimeFailure) as failure:
        _marshalled({"a": object()})
    assert failure.value.name == "Runtime.MarshalError"


def test_bytes_are_answered_as_they_are() -> None:
    assert (_marshalled(b'"text"'), _marshalled({"a": "ä"})) == ('"text"', '{"a": "\\u00e4"}')
