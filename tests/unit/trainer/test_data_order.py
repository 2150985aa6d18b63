"""The stream of samples, for any data set and gang."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.data_order import Block, DataOrder, blocks_of, micro_batch_positions

shard_sizes = st.lists(st.integers(1, 60), min_size=1, max_size=6)


def order_of(sizes: list[int], *, seed: int, block_rows: int = 16) -> tuple[DataOrder, list[Block]]:
    blocks = blocks_of(sizes, block_rows=block_rows)
    return DataOrder(blocks, seed=seed), blocks


def rows_at(order: DataOrder, blocks: list[Block], positions: range | list[int]) -> list[tuple[int, int]]:
    """Shard and row of each position; positions are consecutive."""
    return [
        (blocks[piece.source.block].shard, blocks[piece.source.block].start + row)
        for piece in order.pieces(positions[0], len(positions))
        for row in order.rows(piece.source)[piece.start : piece.stop].tolist()
    ]


@given(shard_sizes, st.integers(0, 2**32), st.integers(1, 20), st.integers(0, 3))
def test_each_epoch_holds_each_sample_once(sizes: list[int], seed: int, block_rows: int, epoch: int) -> None:
    order, blocks = order_of(sizes, seed=seed, block_rows=block_rows)
    start = epoch * order.samples_per_epoch
    seen = rows_at(order, blocks, range(start, start + order.samples_per_epoch))
    assert sorted(seen) == [(shard, row) for shard, size in enumerate(sizes) for row in range(size)]


@given(shard_sizes, st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), st.integers(0, 500))
def test_the_ranks_share_a_step_without_gap_or_overlap(
    sizes: list[int], world_size: int, accumulation: int, micro_batch_size: int, first: int
) -> None:
    shares = [
        micro_batch_positions(first, index=index, rank=rank, world_size=world_size, micro_batch_size=micro_batch_size)[
            1
        ]
        for rank in range(world_size)
        for index in range(accumulation)
    ]
    global_batch = world_size * accumulation * micro_batch_size
    assert sorted(np.concatenate(shares).tolist()) == list(range(first, first + global_batch))


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_micro_batch_has_one_number_whoever_computes_it(world_size: int, accumulation: int) -> None:
    def dealt(world_size: int, accumulation: int) -> dict[int, list[int]]:
        return {
            number: positions.tolist()
            for rank in range(world_size)
            for index in range(accumulation)
            for number, positions in [
                micro_batch_positions(40, index=index, rank=rank, world_size=world_size, micro_batch_size=3)
            ]
        }

    assert dealt(world_size, accumulation) == dealt(1, world_size * accumulation)


def test_another_seed_and_another_epoch_give_another_order() -> None:
    order, blocks = order_of([50, 50], seed=1)
    other, _ = order_of([50, 50], seed=2)
    first = rows_at(order, blocks, range(100))
    assert first == rows_at(order_of([50, 50], seed=1)[0], blocks, range(100))
    assert first != rows_at(other, blocks, range(100))
    assert first != rows_at(order, blocks, range(100, 200))


@given(shard_sizes, st.integers(1, 20), st.integers(1, 5), st.integers(1, 3), st.integers(1, 7), st.integers(0, 9))
def test_in_training_every_epoch_brings_every_sample_once_whatever_the_ranks_and_shards(
    sizes: list[int], block_rows: int, world_size: int, accumulation: int, micro_batch_size: int, seed: int
) -> None:
    """As the loop walks: step by step, all ranks, until two epochs are through."""
    order, blocks = order_of(sizes, seed=seed, block_rows=block_rows)
    global_batch = world_size * accumulation * micro_batch_size
    seen: dict[int, list[tuple[int, int]]] = {}
    for first in range(0, 2 * order.samples_per_epoch, global_batch):
        for rank in range(world_size):
            for index in range(accumulation):
                _, positions = micro_batch_positions(
                    first, index=index, rank=rank, world_size=world_size, micro_batch_size=micro_batch_size
                )
                for position, row in zip(positions.tolist(), rows_at(order, blocks, positions.tolist()), strict=True):
                    seen.setdefault(order.epoch(position), []).append(row)
    everything = [(shard, row) for shard, size in enumerate(sizes) for row in range(size)]
    assert sorted(seen[0]) == sorted(seen[1]) == everything
    assert all(len(set(rows)) == len(rows) < global_batch for epoch, rows in seen.items() if epoch > 1)


@given(shard_sizes, st.integers(1, 20), st.integers(0, 400), st.integers(1, 50))
def test_the_block_ahead_is_the_next_other_one_that_the_stride_leads_to(
    sizes: list[int], block_rows: int, position: int, stride: int
) -> None:
    order, _ = order_of(sizes, seed=3, block_rows=block_rows)
    ahead = order.ahead(position, stride=stride)
    (here,) = order.pieces(position, 1)
    for later in range(position + stride, position + 500 + stride, stride):
        (there,) = order.pieces(later, 1)
        if there.source != here.source:
            assert ahead == there.source
            return


@given(shard_sizes, st.integers(1, 20), st.integers(0, 200), st.integers(1, 150))
def test_many_positions_at_once_are_those_one_by_one(sizes: list[int], block_rows: int, first: int, count: int) -> None:
    order, blocks = order_of(sizes, seed=4, block_rows=block_rows)
    one_by_one = [rows_at(order, blocks, [position])[0] for position in range(first, first + count)]
    assert rows_at(order, blocks, range(first, first + count)) == one_by_one


def test_the_epoch_of_a_position_is_counted_from_zero() -> None:
    order, _ = order_of([3, 4], seed=0)
    assert [order.epoch(position) for position in (0, 6, 7, 13, 14)] == [0, 0, 1, 1, 2]
