"""The result of a program: what it leaves in its pod, the workflow reads from the pod's status."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.runtime.files import leave_result
from trainflow.protocol.result import MAX_BYTES, failure, read_result, success, to_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
results = st.dictionaries(TEXT, VALUES | st.lists(VALUES) | st.dictionaries(TEXT, VALUES))


@given(results)
def test_a_result_comes_back_from_the_termination_message(result: dict[str, object]) -> None:
    message = to_bytes(success(result)).decode()
    assert read_result(message) == {"result": result}


@given(error=st.from_regex(r"[A-Z][A-Za-z]{0,60}", fullmatch=True), message=TEXT | TEXT.map(lambda text: 500 * text))
def test_an_error_comes_back_whole_or_shortened_and_is_never_cut_off(error: str, message: str) -> None:
    kept = to_bytes(failure(error, message))
    assert len(kept) <= MAX_BYTES
    found = read_result(kept.decode())
    assert found["error"] == error
    assert found["message"] == message or message.startswith(found["message"].removesuffix("…"))


@given(st.none() | st.text() | st.binary())
def test_what_is_no_result_is_empty(message: str | bytes | None) -> None:
    assert isinstance(read_result(message), dict)


@pytest.mark.parametrize("message", [None, "", "Killed", "[1]", "3", "[" * 4096, '{"a":' * 800, b"\xff"])
def test_a_message_of_another_program_is_no_result(message: str | bytes | None) -> None:
    assert read_result(message) == {}


def test_the_name_of_a_file_that_is_no_unicode_does_not_cost_the_result(tmp_path: Path) -> None:
    leave_result(failure("StorageFailed", "/data/\udcff.hdf5 cannot be read."), tmp_path / "result")
    found = read_result((tmp_path / "result").read_bytes())
    assert found == {"error": "StorageFailed", "message": "/data/?.hdf5 cannot be read."}


def test_a_message_that_just_fits_is_whole() -> None:
    around = len(to_bytes(failure("StorageFailed", "")))
    fits = "x" * (MAX_BYTES - around)
    assert failure("StorageFailed", fits)["message"] == fits
    shortened = failure("StorageFailed", fits + "x")["message"]
    assert shortened == "x" * ((len(fits) + 1) * 3 // 4) + "…"
