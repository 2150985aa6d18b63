"""Gangs of every size: the collectives that our code forms, and what the test of the nodes says of healthy and of ill
gangs. Real processes, over gloo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.trainer.forked_gang import steady, verdicts
from tests.integration.trainer.forked_training import same, small_training
from trainer.node_verdict import Verdict

SIZES = (1, 2, 3, 4, 5, 7)


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("num_nodes", "per_node"), [*((size, 1) for size in SIZES), (2, 2), (3, 2), (5, 2), (2, 3), (3, 3)]
)
def test_a_healthy_gang_of_any_size_passes_the_test_of_its_nodes(tmp_path: Path, num_nodes: int, per_node: int) -> None:
    found = verdicts(tmp_path, num_nodes=num_nodes, per_node=per_node, faults=steady(num_nodes * per_node, {}))
    assert [each.unhealthy if each else None for each in found] == [{}] * num_nodes
    assert all(each == found[0] for each in found)
    assert found[0] is not None
    if num_nodes > 1:  # one node has no neighbour, and is not tested by jobs
        assert found[0].sentence.startswith(f"Tested {num_nodes} nodes in ")
        assert "memory 1 to 1 GB/s, exchange 1 to 1 GB/s." in found[0].sentence


@pytest.mark.lengthy
@pytest.mark.parametrize("num_nodes", [2, 3, 5])
def test_a_gang_that_is_slow_as_a_whole_trains(tmp_path: Path, num_nodes: int) -> None:
    """Each step of each node takes longer than the least limit, start-up and compilation as well."""
    steps = ("start_memory", "memory", "start_exchange", "exchange")
    slow = dict.fromkeys(range(num_nodes), dict.fromkeys(steps, "lasts"))
    found = verdicts(tmp_path, num_nodes=num_nodes, faults=slow)
    assert [each.unhealthy if each else None for each in found] == [{}] * num_nodes


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ("start_memory", "fails"),
        ("memory", "hangs"),
        ("memory", "dies"),
        ("start_exchange", "fails"),
        ("start_exchange", "hangs"),
        ("exchange", "fails"),
    ],
)
def test_what_happens_to_all_nodes_names_none(tmp_path: Path, step: str, fault: str) -> None:
    faults = {rank: {step: fault} for rank in range(3)}
    found = verdicts(tmp_path, num_nodes=3, faults=faults, limits={"BACKSTOP_SECONDS": 20.0})
    for each in found:
        assert each is None if fault == "dies" else (each is not None and not each.unhealthy)
        assert each is None or each.sentence.endswith(
            ("the training starts.", "the training starts without its result.")
        )


@pytest.mark.lengthy
@pytest.mark.parametrize(("num_nodes", "ill"), [(2, 1), (3, 0), (5, 2)])
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("fails", "failed the test before the training: RuntimeError: HBM parity error"),
        ("hangs", "has not been measured in the test before the training after"),
        ("is_slow", "reached 0.01 GB/s in the test before the training"),
    ],
)
def test_a_node_that_differs_from_its_peers_in_memory_is_named(
    tmp_path: Path, num_nodes: int, ill: int, fault: str, says: str
) -> None:
    found = verdicts(tmp_path, num_nodes=num_nodes, faults=steady(num_nodes, {ill: {"memory": fault}}))
    for node, each in enumerate(found):
        assert each is not None and list(each.unhealthy) == [ill]
        assert says in each.unhealthy[ill]
        assert node == ill or each.acknowledged


@pytest.mark.lengthy
def test_a_node_that_is_slow_in_the_exchange_is_named_among_three_or_more(tmp_path: Path) -> None:
    found = verdicts(tmp_path, num_nodes=5, faults=steady(5, {3: {"exchange": "is_slow"}}))
    assert [list(each.unhealthy) if each else None for each in found] == [[3]] * 5


@pytest.mark.lengthy
@pytest.mark.parametrize("num_nodes", [2, 3, 5])
def test_a_node_that_hangs_in_the_exchange_holds_others_up_and_is_not_named(tmp_path: Path, num_nodes: int) -> None:
    found = verdicts(tmp_path, num_nodes=num_nodes, faults={num_nodes - 1: {"exchange": "hangs"}})
    assert [each.unhealthy if each else None for each in found] == [{}] * num_nodes


@pytest.mark.lengthy
def test_the_peers_of_a_node_whose_process_was_killed_train_like_the_node(tmp_path: Path) -> None:
    """It cannot read the verdict, so it would train, and wait for peers that have ended."""
    found = verdicts(tmp_path, num_nodes=3, faults={1: {"memory": "dies"}}, limits={"ACKNOWLEDGED_WITHIN": 1.0})
    skipped = Verdict(
        sentence="The test of the nodes found node 1 of the gang unhealthy, which does not answer; the training starts "
        "without its result."
    )
    assert found == [skipped, None, skipped]


@pytest.mark.lengthy
@pytest.mark.parametrize("world_size", SIZES)
def test_a_divided_optimizer_saves_and_resumes_with_any_number_of_ranks(tmp_path: Path, world_size: int) -> None:
    training = small_training(tmp_path, gradient_accumulation_steps=1, max_steps=4)
    whole = training.run(world_size)
    assert whole.code == 0, whole.out
    divided = training.like("divided", zero1="true")
    ended = [divided.run(world_size, steps_this_run=2), divided.run(world_size)]
    assert [each.code for each in ended] == [0, 0], ended[-1].out
    assert [loss for each in ended for loss in each.losses] == whole.losses
    assert same(divided.checkpoint(4), training.checkpoint(4))
