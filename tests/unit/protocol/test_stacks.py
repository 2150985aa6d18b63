"""The line with the stacks of a node: it fits a container's log, and a damaged one is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.stacks import (
    MAX_BYTES,
    Frame,
    Group,
    NodeStacks,
    newest_stacks,
    parse_stacks_line,
    stacks_line,
)

STACK = tuple(Frame(file=f"site-packages/some/module_{n}.py", line=n, function=f"function_{n}") for n in range(60))
STILL = NodeStacks(node=0, processes=1, seconds=60.5, groups=(Group(ranks=(0,), threads=(STACK[:3],)),))
MOVES = NodeStacks(node=0, processes=1, seconds=0)


def test_the_newest_line_of_a_log_counts_and_an_empty_one_takes_it_back() -> None:
    still, moves = stacks_line(STILL), stacks_line(MOVES)
    assert newest_stacks(["step 1", f"[0]:{still}", "[0]: still waiting"]) == STILL
    assert newest_stacks([still, moves]) is None
    assert newest_stacks([moves, still]) == STILL
    assert newest_stacks(["step 1"]) is None


@pytest.mark.parametrize("ranks", [1, 16, 64, 128])
def test_a_line_fits_the_log_of_a_container_and_keeps_the_innermost_calls(ranks: int) -> None:
    own = Frame(file="é.py", line=1, function="f", text="'\"\\" * 50)
    groups = tuple(Group(ranks=(rank,), path=f"/runs/{rank}", threads=((own, *STACK),) * 9) for rank in range(ranks))
    line = stacks_line(NodeStacks(node=0, processes=ranks, seconds=60, groups=groups))
    assert len(line.encode()) <= MAX_BYTES
    read = parse_stacks_line(line)
    assert read is not None
    assert read.groups
    assert all(group.threads[0][0] == own for group in read.groups if group.threads)


def test_a_line_that_was_cut_is_passed_over() -> None:
    line = stacks_line(STILL)
    assert {parse_stacks_line(line[:length]) for length in range(len(line) - 1)} == {None}


@given(st.text())
def test_any_text_behind_the_key_is_accepted(text: str) -> None:
    parse_stacks_line(f'{{"trainflow_stacks":{text}')
    parse_stacks_line(f'{{"trainflow_stacks": {{"node": 0, "processes": 1, "seconds": 1, "groups": [{text}]}}}}')
