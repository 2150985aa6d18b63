"""Which nodes of a gang are unhealthy, by what all of them have measured."""

from __future__ import annotations

import itertools

import pytest

from tests.wording import wording
from trainer.node_figures import (
    EXCHANGE,
    MEMORY,
    Finding,
    Measured,
    better,
    finding,
    finding_of_start,
    limit_seconds,
    of_node,
    partners,
    rounds,
    summary,
)

LATE = Measured(is_late=True)


def measured(*figures: float | str | Measured) -> list[Measured]:
    """Figures in GB/s, and errors."""
    return [
        each
        if isinstance(each, Measured)
        else Measured(error=each)
        if isinstance(each, str)
        else Measured(gigabytes_per_second=each)
        for each in figures
    ]


@pytest.mark.parametrize(
    ("figures", "numbers"),
    [
        ([800.0, 790.0, 810.0, 805.0], []),
        ([800.0, 790.0, 399.0, 805.0], [2]),
        ([800.0, 401.0], []),
        ([390.0, 800.0], [0]),
        ([800.0, "NRT_EXEC_HW_ERR_HBM", 790.0], [1]),
        ([800.0, "NRT_EXEC_HW_ERR_HBM"], [1]),
        ([800.0, LATE], [1]),
        ([800.0, LATE, 790.0, 100.0, 805.0], [1, 3]),
        ([Measured(), Measured()], []),
    ],
)
def test_a_node_is_unhealthy_that_fails_hangs_or_is_slow_while_its_peers_are_well(
    figures: list[float | str | Measured], numbers: list[int]
) -> None:
    found = finding(measured(*figures), MEMORY)
    assert (list(found.unhealthy), found.inconclusive) == (numbers, "")


@pytest.mark.parametrize(
    "figures",
    [
        ["no device", "no device", "no device"],
        [LATE, LATE],
        [100.0, "broken", 790.0, 805.0],
        [LATE, "broken", 800.0],
        ["broken"],
    ],
)
def test_what_happens_to_half_of_the_gang_names_no_node(figures: list[float | str | Measured]) -> None:
    found = finding(measured(*figures), MEMORY)
    assert not found.unhealthy and found.inconclusive.endswith("so the test names no node, and the training starts.")


@pytest.mark.parametrize(
    ("figures", "numbers"),
    [
        ([9.0, 1.0], []),
        ([9.0, 1.0, 9.0], [1]),
        ([9.0, "reset by peer", 9.0], [1]),
        ([9.0, 9.0, "broken", LATE, 9.0], [2]),
        ([LATE, 9.0, 9.0, LATE, "broken"], [4]),
        ([9.0, LATE, 9.0], [1]),
        ([9.0, LATE, LATE, 9.0, 9.0], []),
        ([9.0, "broken", "broken", 9.0, 9.0], []),
        ([9.0, "broken", 9.0, LATE, 9.0, 9.0], []),
        ([LATE, "broken", LATE], []),
        (["no device", "no device", "no device"], []),
    ],
)
def test_of_the_nodes_that_an_exchange_holds_up_the_one_is_named_that_explains_all(
    figures: list[float | str | Measured], numbers: list[int]
) -> None:
    found = finding(measured(*figures), EXCHANGE)
    assert list(found.unhealthy) == numbers
    assert bool(found.inconclusive) == (not numbers and len(figures) > 2)


def test_a_device_that_does_not_start_is_a_nodes_own_and_a_group_that_is_not_formed_is_not() -> None:
    nodes = measured(Measured(), "NRT_INIT failed", Measured())
    assert list(finding_of_start(nodes, MEMORY).unhealthy) == [1]
    assert finding_of_start(nodes, EXCHANGE) == Finding(
        inconclusive=wording(
            "node_figures.a_device_that_does_not_start_is_a_nodes_own_and_a_group_that_is_not_formed_is_not", "1", "3"
        )
    )


def test_the_sentences_have_both_figures() -> None:
    assert finding(measured(800.0, 120.0, 790.0), MEMORY).unhealthy[1] == (
        wording("node_figures.the_sentences_have_both_figures.1", "120", "790")
    )
    peers = [Measured(gigabytes_per_second=8.0, seconds=0.6)] * 2
    assert finding([*peers, LATE], MEMORY, seconds=31.2).unhealthy[2] == (
        wording("node_figures.the_sentences_have_both_figures.2", "31", "0.6")
    )


def test_a_node_hangs_by_the_pace_of_its_peers() -> None:
    assert (limit_seconds(0.5), limit_seconds(90.0)) == (30.0, 1800.0)


def test_a_node_is_as_fast_as_its_slowest_process_and_fails_or_is_late_with_any_of_them() -> None:
    assert of_node(measured(8.0, 3.0, 9.0)) == Measured(gigabytes_per_second=3.0)
    assert of_node(measured(8.0, "parity error")).error == "parity error"
    assert of_node([*measured(8.0), None]).is_late
    late_and_failed = of_node([*measured("parity error"), None])
    assert (late_and_failed.error, late_and_failed.is_late) == ("parity error", False)


def test_the_better_of_two_measurements_counts() -> None:
    slow, fast, failed = measured(3.0, 8.0, "timed out")
    assert better(slow, fast) == better(fast, slow) == fast
    assert better(failed, slow) == better(slow, failed) == slow


@pytest.mark.parametrize("num_nodes", range(1, 12))
def test_every_node_has_its_two_neighbours_as_partners_and_one_at_a_time(num_nodes: int) -> None:
    pairs = [pair for each in rounds(num_nodes) for pair in each]
    for each in rounds(num_nodes):
        busy = list(itertools.chain(*each))
        assert len(busy) == len(set(busy))
    if num_nodes > 2:
        ring = {frozenset((number, (number + 1) % num_nodes)) for number in range(num_nodes)}
        assert {frozenset(pair) for pair in pairs} == ring and len(pairs) == num_nodes
    else:
        assert pairs == ([(0, 1)] if num_nodes == 2 else [])


@pytest.mark.parametrize("num_nodes", range(1, 12))
def test_both_partners_of_a_pair_know_each_other(num_nodes: int) -> None:
    for node in range(num_nodes):
        for partner in partners(node, num_nodes):
            assert node in partners(partner, num_nodes)


def test_a_healthy_gang_is_summed_up_in_a_line() -> None:
    told = {"memory": measured(780.0, 812.0), "exchange": [Measured(), Measured()]}
    assert summary(told, seconds=12.34) == "Tested 2 nodes in 12.3 s: memory 780 to 812 GB/s."
