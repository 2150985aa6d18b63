"""The rank that holds up a gang, by recorded stacks of its ranks, in gangs of several sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.failures.stacks import BEHIND, COLLECTIVES, WAITS_FOR_OTHERS, Case, Thread, gang
from trainflow.failures.standstill import Standstill, Wait, standstill
from trainflow.protocol.stacks import Frame, Group, NodeStacks, parse_stacks_line, stacks_line

SIZES = (1, 2, 3, 5)
IN_ALL_REDUCE = "wait in all_reduce at train.py:31 in main: dist.all_reduce(loss)"


def found(nodes: list[NodeStacks]) -> Standstill:
    result = standstill(nodes)
    assert result is not None
    return result


@pytest.mark.parametrize("per_node", [1, 8])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", BEHIND.values(), ids=BEHIND)
def test_the_rank_behind_is_named_with_its_place(case: Case, size: int, per_node: int) -> None:
    for position in range(size):
        told = found(gang(case.group, WAITS_FOR_OTHERS, size, per_node=per_node, position=position))
        assert (told.wait, told.ranks, told.place) == (case.wait, (position,), case.place)
        assert told.sentence.startswith(f"Rank {position} {case.wait.value}")
        assert case.group.path in told.sentence
        assert ("in all_reduce at train.py:31" in told.sentence) == (size > 1)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(("stack", "operation"), COLLECTIVES.values(), ids=COLLECTIVES)
def test_ranks_in_every_kind_of_collective_wait_for_the_rank_that_sleeps(
    stack: Thread, operation: str, size: int
) -> None:
    waiting = Group(ranks=(), threads=(stack,))
    told = found(gang(BEHIND["sleeps"].group, waiting, size, position=size - 1))
    assert (told.ranks, told.wait) == ((size - 1,), Wait.SLEEP)
    assert f" in {operation} at train.py:31 in main" in told.sentence


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_rank_that_has_ended_is_named(size: int) -> None:
    for position in range(size):
        told = found(gang(None, WAITS_FOR_OTHERS, size, per_node=8, position=position))
        assert (told.wait, told.ranks) == (None, (position,))
        assert told.sentence == f"Rank {position} has ended, and the others {IN_ALL_REDUCE}."


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("stack", "operation"), COLLECTIVES.values(), ids=COLLECTIVES)
def test_no_rank_is_blamed_if_all_wait_in_one_operation(stack: Thread, operation: str, size: int) -> None:
    waiting = Group(ranks=(), threads=(stack,))
    told = found(gang(waiting, waiting, size))
    assert (told.wait, told.ranks) == (Wait.COLLECTIVE, ())
    assert told.sentence.startswith(f"Every rank waits in {operation} at train.py:31")


def test_ranks_in_different_operations_are_named_with_theirs() -> None:
    barrier = Group(ranks=(), threads=(COLLECTIVES["a barrier"][0],))
    told = found(gang(barrier, WAITS_FOR_OTHERS, 3, position=1))
    assert told.ranks == ()
    assert told.sentence.startswith("The ranks wait in different operations: ")
    assert "Ranks 0, 2 in all_reduce at train.py:31" in told.sentence
    assert "Rank 1 in barrier" in told.sentence


@pytest.mark.parametrize("size", [2, 3, 5, 40])
def test_ranks_that_all_stand_at_one_place_are_one_group(size: int) -> None:
    sleeps = BEHIND["sleeps"].group
    told = found(gang(sleeps, sleeps, size))
    assert told.ranks == tuple(range(size))
    assert told.sentence.startswith("Ranks 0, 1")
    assert " sleep at train.py:20" in told.sentence
    assert len(told.sentence) < 300


def test_without_stacks_nothing_is_said() -> None:
    assert standstill([]) is None
    assert standstill([NodeStacks(node=0, processes=2, seconds=0)]) is None


names = st.text(max_size=20)
frames = st.builds(Frame, file=names, line=st.integers(0, 9), function=names, text=names)
groups = st.builds(
    Group,
    ranks=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    state=st.sampled_from("SRDTZ"),
    kernel=names,
    path=names,
    dead_children=st.integers(0, 3),
    threads=st.lists(st.lists(frames, max_size=6).map(tuple), max_size=3).map(tuple),
)
nodes = st.builds(
    NodeStacks,
    node=st.integers(0, 3),
    processes=st.integers(0, 4),
    seconds=st.floats(0, 100),
    groups=st.lists(groups, max_size=4).map(tuple),
)


@given(st.lists(nodes, max_size=4))
def test_any_stacks_have_a_verdict_and_pass_through_the_log(given_nodes: list[NodeStacks]) -> None:
    assert [parse_stacks_line(stacks_line(node)) for node in given_nodes] == given_nodes
    assert (standstill(given_nodes) is None) == (not any(node.groups for node in given_nodes))
