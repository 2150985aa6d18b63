"""Ranks stand still if nothing moves: no reading or writing, no computing outside of collectives, no other stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from trainer.steps.hangs.processes import Process, Rank
from trainer.steps.hangs.stillness import MIN_BYTES, Action, Look, Stack, Stillness
from trainflow.protocol.stacks import Frame

QUIET = 60.0
EVERY = 5.0

HERE: Stack = ((Frame(file="train.py", line=7, function="main", text="work()"),),)
THERE: Stack = ((Frame(file="train.py", line=9, function="main", text="more()"),),)
IN_ALL_REDUCE: Stack = (
    (
        Frame(file="site-packages/torch/distributed/distributed_c10d.py", line=3252, function="all_reduce"),
        *HERE[0],
    ),
)

Change = Callable[[Rank, int], Rank]


def still(rank: Rank, _number: int) -> Rank:
    return rank


def with_process(**changes: Callable[[int], float]) -> Change:
    def change(rank: Rank, number: int) -> Rank:
        values: dict[str, Any] = {name: of(number) for name, of in changes.items()}
        return replace(rank, process=replace(rank.process, **values))

    return change


def with_child(**changes: Callable[[int], float]) -> Change:
    def change(rank: Rank, number: int) -> Rank:
        return replace(rank, children=(process(**{"pid": 100, **{name: of(number) for name, of in changes.items()}}),))

    return change


def process(**values: float) -> Process:
    known = {"parent": 1, "state": "S", "cpu_seconds": 5.0, "io_bytes": 10_000}
    return Process(**{**known, **values})  # type: ignore[arg-type]


def reports(
    change: Change, stack: Callable[[int, int], Stack], *, ranks: int = 2, looks: int = 60, stillness: Stillness
) -> list[tuple[float, Action]]:
    """Actions beyond those of taking stacks, with their times; the change is that of the last rank only."""
    found: list[tuple[float, Action]] = []
    for number in range(looks):
        gang = [Rank(number=rank, process=process(pid=10 + rank), children=()) for rank in range(ranks)]
        look = Look(at=1000 + EVERY * number, ranks=[*gang[:-1], change(gang[-1], number)])
        action = stillness.look(look)
        if action is Action.TAKE_STACKS:
            stacks: Mapping[int, Stack] = {rank: stack(rank, number) for rank in range(ranks)}
            action = stillness.stacks(stacks)
        if action in (Action.REPORT, Action.TAKE_BACK):
            found.append((EVERY * number, action))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_that_stand_still_are_reported_once(ranks: int) -> None:
    found = reports(still, lambda *_: HERE, ranks=ranks, stillness=Stillness(QUIET))
    assert found == [(QUIET, Action.REPORT)]


MOVEMENTS: dict[str, Change] = {
    "a rank writes": with_process(io_bytes=lambda number: number * MIN_BYTES),
    "a rank computes": with_process(cpu_seconds=lambda number: number * EVERY * 0.5),
    "a rank takes short steps": with_process(switches=lambda number: number * EVERY * 3),
    "a compiler computes": with_child(cpu_seconds=lambda number: number * EVERY),
    "a data loader reads": with_child(io_bytes=lambda number: number * MIN_BYTES),
    "processes come and go": with_child(pid=lambda number: 200 + number),
}


@pytest.mark.parametrize("change", MOVEMENTS.values(), ids=MOVEMENTS)
def test_one_rank_that_moves_keeps_the_node_from_a_report(change: Change) -> None:
    assert reports(change, lambda *_: HERE, stillness=Stillness(QUIET)) == []


def test_a_rank_whose_stack_changes_goes_on() -> None:
    def changing(rank: int, number: int) -> Stack:
        return (HERE, THERE)[number // 3 % 2] if rank else HERE

    assert reports(still, changing, stillness=Stillness(QUIET)) == []


@pytest.mark.parametrize("name", ["a rank computes", "a rank takes short steps"])
def test_waiting_in_a_collective_is_no_movement_although_it_takes_the_cpu(name: str) -> None:
    found = reports(MOVEMENTS[name], lambda *_: IN_ALL_REDUCE, stillness=Stillness(QUIET))
    ((at, action),) = found
    assert (action, at <= 2 * QUIET) == (Action.REPORT, True)


NOT_MOVEMENTS: dict[str, Change] = {
    "a heartbeat": with_process(io_bytes=lambda number: number * 200, cpu_seconds=lambda number: number * 0.01),
    "a loop that polls": with_process(switches=lambda number: number * EVERY),
    "a tracker's process": with_child(cpu_seconds=lambda number: number * 0.1, io_bytes=lambda number: number * 500),
    "a worker that is dead": with_child(state=lambda _: "Z", io_bytes=lambda number: number * MIN_BYTES),  # type: ignore[arg-type,return-value]
}


@pytest.mark.parametrize("change", NOT_MOVEMENTS.values(), ids=NOT_MOVEMENTS)
def test_processes_that_only_look_after_others_are_no_movement(change: Change) -> None:
    assert [action for _, action in reports(change, lambda *_: HERE, stillness=Stillness(QUIET))] == [Action.REPORT]


def test_a_report_is_taken_back_when_a_rank_moves_again() -> None:
    def later(rank: Rank, number: int) -> Rank:
        return replace(rank, process=replace(rank.process, cpu_seconds=max(0.0, number - 30) * EVERY))

    found = reports(later, lambda *_: HERE, stillness=Stillness(QUIET))
    assert [action for _, action in found] == [Action.REPORT, Action.TAKE_BACK]


def test_a_node_that_worked_for_long_is_reported_as_soon_as_another_one() -> None:
    def worked(rank: Rank, number: int) -> Rank:
        return replace(rank, process=replace(rank.process, cpu_seconds=min(number, 400) * EVERY))

    ((at, action),) = reports(worked, lambda *_: HERE, looks=500, stillness=Stillness(QUIET))
    assert (action, at) == (Action.REPORT, 400 * EVERY + QUIET)


def test_a_node_without_ranks_is_not_reported() -> None:
    assert reports(still, lambda *_: HERE, ranks=1, looks=0, stillness=Stillness(QUIET)) == []
    stillness = Stillness(QUIET)
    assert {stillness.look(Look(at=EVERY * number, ranks=())) for number in range(60)} == {Action.NOTHING}
