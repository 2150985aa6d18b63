"""The order of the samples: a pure function of the seed and the position in an endless stream.

The stream runs through the data set again and again, each epoch in an order of its own and each sample once an epoch.
Where an epoch does not end with a global batch, the batch is filled up with the first samples of the next epoch: none
is dropped, none is repeated before all others were seen, and every batch has the same size.

The data set is divided between lanes once: its blocks of neighbouring rows, shuffled, are cut into `LANES` shares of
equal size. Position p takes the next row of lane p mod LANES, so any 64 consecutive positions come from 64 places of
the data set. Within an epoch a lane walks through its blocks in random order, and rows are shuffled inside their block:
reading is as fast as in order, for a block is read at once.

Position p belongs to a micro-batch, not to a rank, so the samples of a step do not depend on how many processes share
the work, nor on how many shards there are. Every rank takes each `world_size`-th position; where their number is a
power of two, up to LANES, every lane is therefore read by a single rank, and the file system serves each byte once
(docs/decisions/0031-data-order-lanes.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

VERSION = 2
"""Version of the order. Data sets, seeds and positions give the same samples as long as the version stays; a change of
the order raises it. In version 1, blocks of 4,096 rows followed one another, and all ranks read each of them."""

# Decision 31: 64 lanes, so that each batch mixes distant rows and each byte is read by one node.
LANES = 64
"""Places of the data set that the gang reads at the same time. More lanes would divide the reading between more than 64
ranks; fewer would mix less, and need less memory in a single-process training."""

BLOCK_ROWS = 8192
"""Rows at most that are read from a shard at once, unless its chunks are higher. At a block's edges lie chunks that its
neighbours read too: of a shard of 30,000 samples, 8 chunks at once are 1.08 times their bytes, 4 are 1.15 times, and
one is 1.4 times."""

_DEALING, _LANE, _BLOCK, _REST = range(1, 5)
"""Purposes of the random generators."""

Positions = npt.NDArray[np.int64]


class Block(NamedTuple):
    """Neighbouring rows of one shard."""

    shard: int
    start: int
    stop: int


class Piece(NamedTuple):
    """Rows of one block that belong to some of the requested positions."""

    block: int
    """Number of the block in `DataOrder.blocks`."""
    rows: Positions
    """Row numbers, counted from the start of the block."""
    places: slice
    """Indices of the requested positions for these rows."""


class _Stretch(NamedTuple):
    """Positions of one epoch, either all from lanes or all from the rows that belong to no lane."""

    epoch: int
    offset: int
    """Offset of the first position in its epoch."""
    place: int
    """Index of the first position among the requested ones."""
    length: int


def cut_blocks(
    samples_per_shard: Sequence[int],
    *,
    chunk_rows: Sequence[int] | None = None,
    block_rows: int = BLOCK_ROWS,
) -> list[Block]:
    """Cut every shard into blocks of at most `block_rows` rows, where its chunks begin.

    Args:
        samples_per_shard: Number of rows of each shard.
        chunk_rows: Rows that each shard's file stores, and compresses, together; 1 if left out. A block has at least
            one chunk.
        block_rows: Most rows of a block.
    """
    heights = chunk_rows or [1] * len(samples_per_shard)
    return [
        Block(shard, start, min(start + size, num_samples))
        for shard, (num_samples, height) in enumerate(zip(samples_per_shard, heights, strict=True))
        for size in [max(1, block_rows // height) * height]
        for start in range(0, num_samples, size)
    ]


class DataOrder:
    """The stream of one data set under one seed."""

    def __init__(self, blocks: Sequence[Block], *, seed: int, lanes: int = LANES) -> None:
        """
        Args:
            blocks: All rows of the data set.
            seed: Seed of the order.
            lanes: Places of the data set that consecutive positions come from.
        """
        self.samples_per_epoch = sum(block.stop - block.start for block in blocks)
        self.lanes = lanes
        self._seed = seed
        self._rows_per_lane = self.samples_per_epoch // lanes
        shuffled = [blocks[number] for number in self._random(_DEALING).permutation(len(blocks))]
        self.blocks, borders = _cut(shuffled, [self._rows_per_lane * lane for lane in range(1, lanes + 1)])
        """All rows of the data set, in blocks that are read at once; a block that two lanes share is counted as two."""
        self._sizes = np.array([block.stop - block.start for block in self.blocks], dtype=np.int64)
        self._blocks_of_lane = [range(*border) for border in pairwise((0, *borders))]
        self._laneless = range(borders[-1], len(self.blocks))
        self._lane_order = lru_cache(maxsize=4 * lanes)(self._shuffled_lane)
        self._row_order = lru_cache(maxsize=2 * lanes)(self._shuffled_rows)
        self._rest_order = lru_cache(maxsize=2)(self._shuffled_rest)

    def epoch(self, position: int) -> int:
        """The epoch, counted from 0, that a position lies in."""
        return position // self.samples_per_epoch

    def pieces(self, first: int, count: int, *, step: int = 1) -> Iterator[Piece]:
        """The rows of `count` positions: the first one and every `step`-th one after it."""
        for stretch in self._stretches(first, count, step):
            if stretch.offset < self._rows_per_lane * self.lanes:
                yield from self._pieces_of_lanes(stretch, first, step)
            else:
                yield from self._pieces_of_rest(stretch, step)

    def blocks_between(self, first: int, count: int, *, step: int = 1) -> list[int]:
        """The blocks that `pieces` would name, in the order of their first use."""
        needed: dict[int, int] = {}
        for stretch in self._stretches(first, count, step):
            if stretch.offset < self._rows_per_lane * self.lanes:
                found = self._blocks_of_stretch(stretch, first, step)
            else:
                found = ((block, stretch.place) for block in self._laneless)
            for block, place in found:
                needed[block] = min(place, needed.get(block, place))
        return sorted(needed, key=needed.__getitem__)

    def _stretches(self, first: int, count: int, step: int) -> Iterator[_Stretch]:
        place = 0
        while place < count:
            epoch, offset = divmod(first + place * step, self.samples_per_epoch)
            in_lanes = self._rows_per_lane * self.lanes
            end = in_lanes if offset < in_lanes else self.samples_per_epoch
            taken = min(count - place, -((offset - end) // step))
            yield _Stretch(epoch, offset, place, taken)
            place += taken

    def _stretch_lanes(self, stretch: _Stretch, first: int, step: int) -> Iterator[tuple[int, int, int, range]]:
        """Each lane of a stretch: its first place, from one of its places to the next, and the indices in the lane."""
        cycle = self.lanes // math.gcd(self.lanes, step)
        stride = step * cycle // self.lanes
        for turn in range(min(cycle, stretch.length)):
            lane = (first + (stretch.place + turn) * step) % self.lanes
            index = (stretch.offset + turn * step) // self.lanes
            num_rows = -((turn - stretch.length) // cycle)
            yield lane, stretch.place + turn, cycle, range(index, index + num_rows * stride, stride)

    def _pieces_of_lanes(self, stretch: _Stretch, first: int, step: int) -> Iterator[Piece]:
        for lane, place, cycle, indices in self._stretch_lanes(stretch, first, step):
            order, begins = self._lane_order(stretch.epoch, lane)
            at = 0
            number = int(np.searchsorted(begins, indices[0], side="right")) - 1
            while at < len(indices):
                ends = int(begins[number + 1])
                taken = min(len(indices) - at, -((indices[at] - ends) // indices.step))
                start = indices[at] - int(begins[number])
                rows = self._row_order(stretch.epoch, order[number])
                yield Piece(
                    order[number],
                    rows[start : start + taken * indices.step : indices.step],
                    slice(place + at * cycle, place + (at + taken - 1) * cycle + 1, cycle),
                )
                at, number = at + taken, number + 1
                while at < len(indices) and begins[number + 1] <= indices[at]:
                    number += 1  # the stride leads past a whole block

    def _blocks_of_stretch(self, stretch: _Stretch, first: int, step: int) -> Iterator[tuple[int, int]]:
        for lane, place, cycle, indices in self._stretch_lanes(stretch, first, step):
            order, begins = self._lane_order(stretch.epoch, lane)
            from_, to = np.searchsorted(begins, (indices[0], indices[-1]), side="right")
            for number in range(int(from_) - 1, int(to)):
                rows_before = max(0, int(begins[number]) - indices[0])
                yield order[number], place + cycle * -(-rows_before // indices.step)

    def _pieces_of_rest(self, stretch: _Stretch, step: int) -> Iterator[Piece]:
        """The rows at the end of an epoch, fewer than lanes, one by one."""
        order = self._rest_order(stretch.epoch)
        for turn in range(stretch.length):
            block, row = order[stretch.offset + turn * step - self._rows_per_lane * self.lanes]
            place = stretch.place + turn
            yield Piece(block, np.array([row], dtype=np.int64), slice(place, place + 1))

    def _shuffled_lane(self, epoch: int, lane: int) -> tuple[list[int], Positions]:
        """A lane's blocks in the epoch's order and the start of each in the lane; the last entry is the end of the last
        block."""
        blocks = self._blocks_of_lane[lane]
        order = self._random(_LANE, epoch, lane).permutation(np.arange(blocks.start, blocks.stop))
        return order.tolist(), np.cumsum([0, *self._sizes[order]])

    def _shuffled_rows(self, epoch: int, block: int) -> Positions:
        return self._random(_BLOCK, epoch, block).permutation(int(self._sizes[block]))

    def _random(self, what: int, epoch: int = 0, number: int = 0) -> np.random.Generator:
        """A separate random generator for each of these numbers; always seeded with as many numbers, since trailing
        zeros make no difference."""
        return np.random.default_rng((self._seed, what, epoch, number))

    def _shuffled_rest(self, epoch: int) -> list[tuple[int, int]]:
        """Block and row of the samples that remain after every lane has the same number."""
        rest = [(block, row) for block in self._laneless for row in range(int(self._sizes[block]))]
        return [rest[number] for number in self._random(_REST, epoch).permutation(len(rest))]


def _cut(blocks: Sequence[Block], marks: Sequence[int]) -> tuple[list[Block], list[int]]:
    """Cut blocks, laid one behind the other, after so many rows.

    Args:
        blocks: In their order.
        marks: Ascending numbers of rows.

    Returns:
        The blocks, more of them; and for each mark, how many of them lie before it.
    """
    cut: list[Block] = []
    borders: list[int] = []
    begin = 0
    for block in blocks:
        end = begin + block.stop - block.start
        start = block.start
        while len(borders) < len(marks) and marks[len(borders)] <= end:
            stop = block.start + marks[len(borders)] - begin
            if stop > start:
                cut.append(Block(block.shard, start, stop))
            borders.append(len(cut))
            start = stop
        if start < block.stop:
            cut.append(Block(block.shard, start, block.stop))
        begin = end
    return cut, borders


def micro_batch_positions(
    first: int, *, index: int, rank: int, world_size: int, micro_batches: int, micro_batch_size: int
) -> tuple[int, Positions]:
    """The positions of one micro-batch of a step.

    A step's global batch is divided between its micro-batches position by position, and these to the ranks in turn, so
    that two ranks with one micro-batch each train on what one rank with two would. A rank's positions are the same
    modulo `world_size` in every step, and so are its lanes.

    Args:
        first: Position of the step's first sample.
        index: Which of this rank's micro-batches in the step.
        rank: This process.
        world_size: Number of processes.
        micro_batches: Number of micro-batches of each rank in the step.
        micro_batch_size: Sequences in a micro-batch.

    Returns:
        The micro-batch's number within the step, which is the same on any rank that computes it, and its positions.
    """
    number = index * world_size + rank
    stride = world_size * micro_batches
    return number, first + number + stride * np.arange(micro_batch_size, dtype=np.int64)
