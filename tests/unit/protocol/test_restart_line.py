"""The line about a restart in the pods is read as it was written, and any other text is another line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.restart_line import Restarted, parse_restarted_line, restarted_line, since_restart

ONE = Restarted(attempt=2, round=1, node=3, reason="signal 9 (SIGKILL)")


@given(
    st.builds(
        Restarted, **dict.fromkeys(("attempt", "round", "node"), st.integers(0, 999)), reason=st.text(max_size=200)
    )
)
def test_a_restart_is_read_as_it_was_written(restarted: Restarted) -> None:
    assert parse_restarted_line(restarted_line(restarted)) == restarted


@given(st.text())
def test_any_other_text_is_another_line(text: str) -> None:
    assert parse_restarted_line(text) is None
    assert parse_restarted_line('{"trainflow_restarted":' + text) is None


def test_numbers_that_are_none_make_another_line() -> None:
    line = restarted_line(ONE)
    assert parse_restarted_line(line.replace("2", '"2"', 1)) is None
    assert parse_restarted_line(line.replace("3", "-3", 1)) is None


def test_only_lines_behind_the_newest_restart_are_evidence() -> None:
    line = restarted_line(ONE)
    assert since_restart(["a", line, "b", line, "c"]) == ["c"]
    assert since_restart(["a", line]) == []
    assert since_restart(["a", "b"]) == ["a", "b"]
