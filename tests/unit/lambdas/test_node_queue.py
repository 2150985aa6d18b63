"""Nodes are requested for whole gangs and granted in the order of claims; who overtakes delays nobody."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.node_queue import NodeQueue, node_queue
from tests.fakes.claims import claim
from trainflow.nodes.training_nodes import Claim

PLENTY = 100


def available(
    run_id: str, *, nodes_ready: int, claims: list[Claim], granted: Collection[str]
) -> tuple[int, dict[str, int]]:
    queue = node_queue(claims, granted=granted, maximum=PLENTY)
    return queue.available(run_id, nodes_ready=nodes_ready), queue.held_by_others(run_id)


def names(claims: Collection[Claim]) -> list[str]:
    return [each.run_id for each in claims]


def test_a_run_waits_behind_those_that_came_before_it_and_holds_nothing_meanwhile() -> None:
    claims = [claim("small", 1, 3), claim("large", 4, 2), claim("first", 2, 1)]
    assert available("first", nodes_ready=3, claims=claims, granted=()) == (3, {})
    assert available("large", nodes_ready=3, claims=claims, granted=["first"]) == (1, {"first": 2})
    assert available("small", nodes_ready=3, claims=claims, granted=["first"]) == (0, {"first": 2}), "no overtaking"
    assert available("large", nodes_ready=6, claims=claims, granted=["first"]) == (4, {"first": 2})


@pytest.mark.parametrize("order", [("alpha", "omega"), ("omega", "alpha")])
def test_nodes_are_granted_in_the_order_of_time_and_not_of_names(order: tuple[str, str]) -> None:
    first, second = order
    claims = [claim(second, 3, 2), claim(first, 3, 1)]
    assert available(first, nodes_ready=3, claims=claims, granted=()) == (3, {})
    assert available(second, nodes_ready=3, claims=claims, granted=()) == (0, {})


def test_claims_of_one_second_are_granted_by_name_so_that_two_polls_agree() -> None:
    claims = [claim("omega", 3, 1), claim("alpha", 3, 1)]
    for order in (claims, claims[::-1]):
        assert available("alpha", nodes_ready=3, claims=order, granted=()) == (3, {})
        assert available("omega", nodes_ready=3, claims=order, granted=()) == (0, {})


def test_a_run_that_is_started_anew_keeps_its_place() -> None:
    claims = [claim("early", 4, 1), claim("mine", 2, 2)]
    assert available("mine", nodes_ready=2, claims=claims, granted=["mine"]) == (2, {})
    assert available("mine", nodes_ready=1, claims=claims, granted=["mine"]) == (1, {}), "one was lost"


@pytest.mark.parametrize("size", [2, 3, 5, 7, 9])
def test_no_node_is_requested_for_a_gang_that_does_not_fit_beside_those_that_run(size: int) -> None:
    claims = [claim("training", 9, 1), claim("waiting", size, 2)]
    queue = node_queue(claims, granted=["training"], maximum=10)
    assert queue.num_nodes == 9
    assert queue.available("waiting", nodes_ready=10) == 0, "the free node is of no use for it"
    blockage = queue.blockage("waiting")
    assert blockage is not None
    assert (blockage.maximum, blockage.held, blockage.num_held, blockage.num_ahead) == (10, {"training": 9}, 9, 0)
    assert queue.blockage("training") is None


def test_nodes_are_requested_for_every_gang_that_fits() -> None:
    claims = [claim("a", 3, 1), claim("b", 5, 2), claim("c", 2, 3)]
    queue = node_queue(claims, granted=["a"], maximum=10)
    assert (queue.num_nodes, names(queue.served), queue.blockage("c")) == (10, ["b", "c"], None)


def test_a_small_run_overtakes_a_blocked_one_where_that_finds_its_nodes_as_early() -> None:
    claims = [claim("training", 9, 1), claim("large", 9, 2), claim("small", 4, 3), claim("medium", 8, 4)]
    queue = node_queue(claims, granted=["training"], maximum=16)
    assert (names(queue.served), names(queue.blocked)) == (["small"], ["large", "medium"])
    assert queue.available("small", nodes_ready=13) == 4
    blockage = queue.blockage("medium")
    assert blockage is not None
    assert (blockage.ahead, blockage.num_ahead, blockage.num_held) == (("large",), 1, 13)


def test_a_small_run_does_not_overtake_where_the_blocked_one_would_wait_for_it() -> None:
    claims = [claim("training", 9, 1), claim("large", 14, 2), claim("small", 4, 3)]
    queue = node_queue(claims, granted=["training"], maximum=16)
    assert (names(queue.served), names(queue.blocked)) == ([], ["large", "small"])


def test_a_gang_that_is_larger_than_all_usable_nodes_blocks_no_other() -> None:
    claims = [claim("impossible", 5, 1), claim("small", 2, 2), claim("next", 2, 3)]
    queue = node_queue(claims, granted=(), maximum=4)
    assert (names(queue.served), names(queue.blocked)) == (["small", "next"], ["impossible"])


def test_of_many_runs_the_largest_holders_and_the_first_in_line_are_named() -> None:
    holders = [claim(f"h{number:02}", 1 + (number == 13), number) for number in range(20)]
    waiting = [claim(f"w{number:02}", 30, 20 + number) for number in range(20)]
    queue = node_queue([*holders, *waiting], granted=names(holders), maximum=30)
    blockage = queue.blockage("w19")
    assert blockage is not None
    assert (len(blockage.held), max(blockage.held, key=lambda run: blockage.held[run])) == (10, "h13")
    assert (blockage.num_held, blockage.num_ahead, blockage.ahead[0], len(blockage.ahead)) == (21, 19, "w00", 10)


GANGS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=8)


@given(st.integers(1, 8), GANGS, st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=60))
def test_whatever_the_order_of_polls_no_node_is_granted_twice_and_all_are_served_in_the_end(
    nodes: int, gangs: list[tuple[int, int]], polls: list[tuple[int, bool]]
) -> None:
    claims = {f"run-{i}": claim(f"run-{i}", size, created) for i, (size, created) in enumerate(gangs) if size <= nodes}
    granted: dict[str, int] = {}

    def poll(run_id: str) -> None:
        nonlocal granted
        queue = node_queue(claims.values(), granted=granted, maximum=nodes)
        assert queue.num_nodes <= nodes
        if queue.available(run_id, nodes_ready=nodes) >= claims[run_id].num_nodes:
            granted = {**queue.held_by_others(run_id), run_id: claims[run_id].num_nodes}

    for index, ends in polls:
        run_id = f"run-{index}"
        if run_id in claims:
            poll(run_id)
            assert sum(granted[each] for each in granted if each in claims) <= nodes
            if ends and run_id in granted:
                del claims[run_id]
    while claims:
        for run_id in list(claims):
            poll(run_id)
        served = [run_id for run_id in claims if run_id in granted]
        assert served, "nobody waits for ever"
        for run_id in served:
            del claims[run_id]


@given(
    st.integers(1, 12),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(1, 12),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_whoever_ends_first_a_blocked_run_starts_as_early_as_without_those_that_overtook_it(
    maximum: int, sizes: list[int], blocked_size: int, later_sizes: list[int], order: object
) -> None:
    holders = [claim(f"h{number}", size, 0) for number, size in enumerate(sizes)]
    blocked = claim("blocked", blocked_size, 1)
    later = [claim(f"l{number}", size, 2 + number) for number, size in enumerate(later_sizes)]
    granted = names(holders)
    if sum(sizes) > maximum or blocked_size > maximum or _fits(blocked, holders, maximum):
        return
    queue = node_queue([*holders, blocked, *later], granted=granted, maximum=maximum)
    ending = list(holders)
    order.shuffle(ending)  # type: ignore[attr-defined]
    while not _fits(blocked, ending, maximum):
        ending.pop()
    assert _fits(blocked, [*ending, *queue.served], maximum), "those that overtook it run for ever"


def _fits(gang: Claim, running: Collection[Claim], maximum: int) -> bool:
    return sum(each.num_nodes for each in running) + gang.num_nodes <= maximum


def test_a_run_without_a_claim_is_neither_blocked_nor_granted_the_nodes_of_others() -> None:
    queue: NodeQueue = node_queue([claim("a", 2, 1)], granted=["a"], maximum=4)
    assert (queue.blockage("none"), queue.available("none", nodes_ready=3)) == (None, 1)
