"""Which nodes of a gang are unhealthy, by what all of them have measured."""

from __future__ import annotations

import itertools

import pytest

from trainer.node_figures import Measured, better, of_node, rounds, summary, unhealthy

WHAT = "The memory of this node's devices"


def measured(*figures: float | str) -> list[Measured]:
    """Figures in GB/s, and errors."""
    return [Measured(error=each) if isinstance(each, str) else Measured(gigabytes_per_second=each) for each in figures]


@pytest.mark.parametrize(
    ("figures", "numbers"),
    [
        ([800.0, 790.0, 810.0, 805.0], []),
        ([800.0, 790.0, 399.0, 805.0], [2]),
        ([800.0, 401.0], []),
        ([390.0, 800.0], [0]),
        ([800.0, "NRT_EXEC_HW_ERR_HBM", 790.0], [1]),
        ([800.0, "NRT_EXEC_HW_ERR_HBM"], [1]),
        (["no device", "no device", "no device"], []),
        ([100.0, "broken", 790.0, 805.0], [0, 1]),
        ([Measured(), Measured()], []),
    ],
)
def test_a_node_is_unhealthy_that_fails_alone_or_is_less_than_half_as_fast_as_the_median(
    figures: list[float | str], numbers: list[int]
) -> None:
    nodes = [each if isinstance(each, Measured) else measured(each)[0] for each in figures]
    assert list(unhealthy(nodes, WHAT)) == numbers


def test_the_sentence_has_both_figures() -> None:
    assert unhealthy(measured(800.0, 120.0, 790.0), WHAT)[1] == (
        "The memory of this node's devices reached 120 GB/s in the test before the training, and the median of the "
        "gang's 3 nodes is 790 GB/s."
    )


def test_two_nodes_that_exchange_data_are_not_compared() -> None:
    assert unhealthy(measured(9.0, 1.0), WHAT, fewest=3) == {}
    assert list(unhealthy(measured(9.0, 1.0, 9.0), WHAT, fewest=3)) == [1]


def test_a_node_is_as_fast_as_its_slowest_process_and_fails_with_any_of_them() -> None:
    assert of_node(measured(8.0, 3.0, 9.0)) == Measured(gigabytes_per_second=3.0)
    assert of_node(measured(8.0, "parity error")).error == "parity error"


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


def test_a_healthy_gang_is_summed_up_in_a_line() -> None:
    memory = dict(enumerate(measured(780.0, 812.0)))
    assert summary(memory, dict(enumerate([Measured(), Measured()])), seconds=12.34) == (
        "Tested 2 nodes in 12.3 s: memory 780 to 812 GB/s."
    )
