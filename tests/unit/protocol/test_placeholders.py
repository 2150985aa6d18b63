"""Placeholders are filled in where they are, and every other text stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.placeholders import filled_by_launcher, filled_by_workflow, placeholders_in

VALUES = {"data_dir": "/data/wiki", "run_dir": "/runs/r", "cache_dir": "/cache/c", "run_id": "r"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{run_dir}/logs", "/runs/r/logs"),
        ("--out={run_dir}:{run_id}", "--out=/runs/r:r"),
        ("{{run_dir}}", "{run_dir}"),
        ("epoch-{{epoch}}-{val_loss:.2f}", "epoch-{epoch}-{val_loss:.2f}"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("${HOME}/{RUN}", "${HOME}/{RUN}"),
        ("${run_dir}", "${run_dir}"),
        ("{}", "{}"),
    ],
)
def test_the_workflow_fills_in_what_is_a_placeholder(text: str, filled: str) -> None:
    assert filled_by_workflow(text, VALUES, by_launcher=False) == filled


def test_a_placeholder_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled_by_workflow("{rank}", VALUES, by_launcher=False)


def test_the_launcher_fills_in_the_rank_that_the_workflow_left() -> None:
    left = filled_by_workflow("{run_dir}/{rank} {{rank}} {{run_id}}", VALUES, by_launcher=True)
    assert left == "/runs/r/{rank} {{rank}} {run_id}"
    assert filled_by_launcher(left, rank=3) == "/runs/r/3 {rank} {run_id}"


def test_placeholders_are_named_once_in_their_order() -> None:
    assert placeholders_in(["{b}{a}", "{{c}}", "{a} ${d}"]) == ["b", "a"]


@given(st.text(alphabet="{}$ab_ "))
def test_a_text_without_placeholders_keeps_every_character_but_doubled_braces(text: str) -> None:
    if placeholders_in([text]):
        return
    filled = filled_by_workflow(text, {}, by_launcher=False)
    assert filled.replace("{", "").replace("}", "") == text.replace("{", "").replace("}", "")


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    filled_by_launcher(text, rank=0)
    placeholders_in([text])
