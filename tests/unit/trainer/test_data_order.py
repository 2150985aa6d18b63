"""The stream of samples, for any data set and gang."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.data_order import LANES, Block, DataOrder, cut_blocks, micro_batch_positions

shard_sizes = st.lists(st.integers(1, 60), min_size=1, max_size=6)


def order_of(sizes: list[int], *, seed: int, block_rows: int = 16, num_lanes: int = 8) -> DataOrder:
    return DataOrder(cut_blocks(sizes, block_rows=block_rows), seed=seed, lanes=num_lanes)


def rows_at(order: DataOrder, positions: range | list[int]) -> list[tuple[int, int]]:
    """Shard and row of each position; positions are equally far apart."""
    step = positions[1] - positions[0] if len(positions) > 1 else 1
    found: list[tuple[int, int] | None] = [None] * len(positions)
    for piece in order.pieces(positions[0], len(positions), step=step):
        block = order.blocks[piece.block]
        places = range(len(positions))[piece.places]
        for place, row in zip(places, piece.rows.tolist(), strict=True):
            assert found[place] is None
            found[place] = (block.shard, block.start + row)
    return [row for row in found if row is not None]


@given(shard_sizes, st.integers(0, 2**32), st.integers(1, 20), st.integers(0, 3))
def test_each_epoch_holds_each_sample_once(sizes: list[int], seed: int, block_rows: int, epoch: int) -> None:
    order = order_of(sizes, seed=seed, block_rows=block_rows)
    start = epoch * order.samples_per_epoch
    seen = rows_at(order, range(start, start + order.samples_per_epoch))
    assert sorted(seen) == [(shard, row) for shard, size in enumerate(sizes) for row in range(size)]


@given(shard_sizes, st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), st.integers(0, 500))
def test_the_ranks_share_a_step_without_gap_or_overlap(
    sizes: list[int], world_size: int, accumulation: int, micro_batch_size: int, first: int
) -> None:
    shares = [
        micro_batch_positions(
            first,
            index=index,
            rank=rank,
            world_size=world_size,
            micro_batches=accumulation,
            micro_batch_size=micro_batch_size,
        )[1]
        for rank in range(world_size)
        for index in range(accumulation)
    ]
    global_batch = world_size * accumulation * micro_batch_size
    assert sorted(np.concatenate(shares).tolist()) == list(range(first, first + global_batch))


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_micro_batch_has_the_same_number_on_any_rank(world_size: int, accumulation: int) -> None:
    def dealt(world_size: int, accumulation: int) -> dict[int, list[int]]:
        return {
            number: positions.tolist()
            for rank in range(world_size)
            for index in range(accumulation)
            for number, positions in [
                micro_batch_positions(
                    40, index=index, rank=rank, world_size=world_size, micro_batches=accumulation, micro_batch_size=3
                )
            ]
        }

    assert dealt(world_size, accumulation) == dealt(1, world_size * accumulation)


def test_another_seed_and_another_epoch_give_another_order() -> None:
    order = order_of([50, 50], seed=1)
    other = order_of([50, 50], seed=2)
    first = rows_at(order, range(100))
    assert first == rows_at(order_of([50, 50], seed=1), range(100))
    assert first != rows_at(other, range(100))
    assert first != rows_at(order, range(100, 200))


@pytest.mark.parametrize(
    ("sizes", "block_rows", "num_lanes"),
    [
        ([640, 640], 8192, LANES),
        ([LANES], 8192, LANES // 2),
        ([LANES, LANES], 1, 8),
        ([LANES], 8, 8),
    ],
    ids=["blocks and rows", "two rows a lane", "only the order of blocks can differ", "only that of rows in a block"],
)
def test_each_epoch_has_an_order_of_its_own_where_every_lane_begins_at_the_same_position(
    sizes: list[int], block_rows: int, num_lanes: int
) -> None:
    """The number of samples is a multiple of the lanes. With others the lanes shift from epoch to epoch, so a position
    has another sample even if the lanes' own order stays."""
    order = order_of(sizes, seed=1, block_rows=block_rows, num_lanes=num_lanes)
    assert order.samples_per_epoch % num_lanes == 0
    epochs = [rows_at(order, range(n * sum(sizes), (n + 1) * sum(sizes))) for n in range(4)]
    assert all(one != other for one, other in itertools.combinations(epochs, 2))


def test_the_samples_that_belong_to_no_lane_have_another_order_in_each_epoch() -> None:
    order = order_of([LANES + 7], seed=1)
    ends = [rows_at(order, range((n + 1) * (LANES + 7) - 7, (n + 1) * (LANES + 7))) for n in range(4)]
    assert all(sorted(end) == sorted(ends[0]) for end in ends)
    assert all(one != other for one, other in itertools.combinations(ends, 2))


@given(shard_sizes, st.integers(1, 20), st.integers(1, 5), st.integers(1, 3), st.integers(1, 7), st.integers(0, 9))
def test_in_training_every_epoch_brings_every_sample_once_whatever_the_ranks_and_shards(
    sizes: list[int], block_rows: int, world_size: int, accumulation: int, micro_batch_size: int, seed: int
) -> None:
    """Read positions as the loop does: step by step, for all ranks, until two epochs are over."""
    order = order_of(sizes, seed=seed, block_rows=block_rows)
    global_batch = world_size * accumulation * micro_batch_size
    seen: dict[int, list[tuple[int, int]]] = {}
    for first in range(0, 2 * order.samples_per_epoch, global_batch):
        for rank in range(world_size):
            for index in range(accumulation):
                _, positions = micro_batch_positions(
                    first,
                    index=index,
                    rank=rank,
                    world_size=world_size,
                    micro_batches=accumulation,
                    micro_batch_size=micro_batch_size,
                )
                for position, row in zip(positions.tolist(), rows_at(order, positions.tolist()), strict=True):
                    seen.setdefault(order.epoch(position), []).append(row)
    everything = [(shard, row) for shard, size in enumerate(sizes) for row in range(size)]
    assert sorted(seen[0]) == sorted(seen[1]) == everything
    assert all(len(set(rows)) == len(rows) < global_batch for epoch, rows in seen.items() if epoch > 1)


@given(shard_sizes, st.integers(1, 20), st.integers(0, 400), st.integers(1, 150), st.integers(1, 40))
def test_the_blocks_to_read_are_those_of_the_positions_in_the_order_of_their_use(
    sizes: list[int], block_rows: int, first: int, count: int, step: int
) -> None:
    order = order_of(sizes, seed=3, block_rows=block_rows)
    pieces = sorted(order.pieces(first, count, step=step), key=lambda piece: piece.places.start)
    rows_in_lanes = order.samples_per_epoch // order.lanes * order.lanes
    rows_before = itertools.accumulate((block.stop - block.start for block in order.blocks), initial=0)
    in_lanes = {number for number, rows in enumerate(rows_before) if rows < rows_in_lanes}
    used = list(dict.fromkeys(piece.block for piece in pieces if piece.block in in_lanes))
    named = [block for block in order.blocks_between(first, count, step=step) if block in in_lanes]
    assert set(used) <= set(named)
    if order.lanes % step == 0:  # as ranks read; otherwise a step may lead past a whole block
        assert named == used


@given(shard_sizes, st.integers(1, 20), st.integers(0, 200), st.integers(1, 150), st.integers(1, 40))
def test_many_positions_at_once_are_those_one_by_one(
    sizes: list[int], block_rows: int, first: int, count: int, step: int
) -> None:
    order = order_of(sizes, seed=4, block_rows=block_rows)
    one_by_one = [rows_at(order, [position])[0] for position in range(first, first + count * step, step)]
    assert rows_at(order, range(first, first + count * step, step)) == one_by_one


def test_the_epoch_of_a_position_is_counted_from_zero() -> None:
    order = order_of([3, 4], seed=0)
    assert [order.epoch(position) for position in (0, 6, 7, 13, 14)] == [0, 0, 1, 1, 2]


@given(shard_sizes, st.integers(1, 20), st.integers(1, 12))
def test_every_lane_has_as_many_rows_and_few_have_none(sizes: list[int], block_rows: int, num_lanes: int) -> None:
    order = order_of(sizes, seed=6, block_rows=block_rows, num_lanes=num_lanes)
    in_lanes = sum(sizes) // num_lanes * num_lanes
    lanes = [set(rows_at(order, range(lane, in_lanes, num_lanes))) for lane in range(min(num_lanes, in_lanes))]
    assert len(set().union(*lanes)) == in_lanes > sum(sizes) - num_lanes
    later = 5 * sum(sizes)
    for lane in range(len(lanes)):
        start = later + (lane - later) % num_lanes
        assert set(rows_at(order, range(start, later + in_lanes, num_lanes))) == lanes[lane], "in another epoch, too"


@pytest.mark.parametrize("sizes", [[30_000] * 40, [100_000] * 12, [1_200_000], [4_000] * 300])
def test_a_global_batch_mixes_64_neighbourhoods(sizes: list[int]) -> None:
    order = DataOrder(cut_blocks(sizes), seed=9)
    batches = [order.blocks_between(first, 16_384) for first in range(0, sum(sizes) - 16_384, 5 * 16_384)]
    assert min(len(blocks) for blocks in batches) >= LANES >= 64


@pytest.mark.parametrize("size", [2, 16, 63, 64])
def test_a_small_batch_has_no_two_samples_of_one_lane(size: int) -> None:
    order = DataOrder(cut_blocks([100_000] * 12), seed=9)
    for first in range(0, 10_000, size):
        assert len(order.blocks_between(first, size)) == size


def test_blocks_begin_where_chunks_do() -> None:
    assert cut_blocks([10, 9, 3], chunk_rows=[2, 4, 5], block_rows=7) == [
        Block(0, 0, 6),
        Block(0, 6, 10),
        Block(1, 0, 4),
        Block(1, 4, 8),
        Block(1, 8, 9),
        Block(2, 0, 3),
    ]
