"""Blocks are read ahead, once each, and forgotten."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.unit.trainer.conftest import make_rows, write_shard
from trainer.data.data_order import LANES, micro_batch_positions
from trainer.data.shard_file import Rows
from trainer.data.shards import ShardedDataset, open_dataset
from trainer.pretraining import batches
from trainer.pretraining.batches import WINDOW_ROWS, BatchReader, Packed, ReadAhead
from trainer.runtime.errors import DatasetInvalid

DEADLINE_SECONDS = 30


class Blocks:
    """Blocks whose reading can be watched; those in `broken` cannot be read."""

    def __init__(self, *, broken: set[int] | None = None) -> None:
        self.read: list[int] = []
        self._broken = broken or set()
        self._events: dict[int, threading.Event] = {}

    def __call__(self, number: int) -> Packed:
        self.read.append(number)
        self._event(number).set()
        if number in self._broken:
            raise DatasetInvalid(f"block {number}")
        return np.zeros(2, dtype=[("input_ids", np.uint8)])

    def has_been_read(self, number: int) -> bool:
        return self._event(number).wait(DEADLINE_SECONDS)

    def _event(self, number: int) -> threading.Event:
        return self._events.setdefault(number, threading.Event())


def test_the_next_block_is_read_before_it_is_requested() -> None:
    blocks = Blocks()
    read = ReadAhead(blocks)
    read([0], ahead=[1])
    assert blocks.has_been_read(1)
    read([1], ahead=[2])
    assert blocks.has_been_read(2)
    assert blocks.read == [0, 1, 2]


def test_blocks_that_are_neither_needed_nor_ahead_are_forgotten() -> None:
    blocks = Blocks()
    read = ReadAhead(blocks)
    read([0], ahead=[1])
    read([1], ahead=[2])
    read([0], ahead=[])
    assert blocks.read.count(0) == 2


def test_a_damaged_block_is_told_of_where_it_is_used_and_not_before() -> None:
    blocks = Blocks(broken={1})
    read = ReadAhead(blocks)
    read([0], ahead=[1])
    assert blocks.has_been_read(1)
    read([0], ahead=[1])
    with pytest.raises(DatasetInvalid, match="block 1"):
        read([1], ahead=[2])


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """Counts every block that is read from this test's shards; a thread of an earlier test may still be reading."""
    counted: Counter[tuple[str, int]] = Counter()
    read_rows: Callable[[Path, int, int], Rows] = batches.read_rows

    def counting(path: Path, start: int, stop: int) -> Rows:
        if path.parent == tmp_path:
            counted[path.name, start] += 1
        return read_rows(path, start, stop)

    monkeypatch.setattr(batches, "read_rows", counting)
    return counted


NODE_RANKS = 4


@pytest.fixture(scope="module")
def large_dataset(tmp_path_factory: pytest.TempPathFactory) -> ShardedDataset:
    """A data set with enough samples for blocks larger than the ends of lanes: one shard, stored once, under many
    names."""
    folder = tmp_path_factory.mktemp("large")
    path = write_shard(folder, 0, make_rows(3989, seq_length=128, predictions=20))
    for number in range(1, 136):
        (folder / f"demo_training_{number}.hdf5").hardlink_to(path)
    return open_dataset(folder)


@pytest.mark.lengthy
def test_a_node_reads_each_byte_of_its_files_once_an_epoch(
    large_dataset: ShardedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that the node's ranks ask the operating system for, in whichever call; none comes from another's memory."""
    monkeypatch.setattr(batches, "AHEAD_ROWS", 0)  # what is read ahead at the end belongs to the next epoch
    whole_windows = large_dataset.num_samples // (NODE_RANKS * WINDOW_ROWS) * NODE_RANKS * WINDOW_ROWS
    process = psutil.Process()
    began = process.io_counters().read_chars
    for rank in range(NODE_RANKS):
        reader = BatchReader(large_dataset, seed=5, vocab_size=50, world_size=NODE_RANKS, kept_bytes=0)
        for first in range(0, whole_windows, NODE_RANKS * 256):
            _, positions = micro_batch_positions(
                first, index=0, rank=rank, world_size=NODE_RANKS, micro_batches=1, micro_batch_size=256
            )
            reader.micro_batch(positions)
    num_bytes = sum(shard.path.stat().st_size for shard in large_dataset.shards)
    share = whole_windows / large_dataset.num_samples
    assert 0.95 < (process.io_counters().read_chars - began) / (num_bytes * share) < 1.1


@pytest.mark.parametrize("world_size", [1, 2, 8, 32, LANES])
def test_no_two_ranks_of_a_gang_read_the_same_block(large_dataset: ShardedDataset, world_size: int) -> None:
    order = BatchReader(large_dataset, seed=5, vocab_size=50).order
    in_lanes = order.samples_per_epoch // LANES * LANES
    read = Counter(
        block
        for rank in range(world_size)
        for block in order.blocks_between(rank, in_lanes // world_size, step=world_size)
    )
    assert set(read.values()) == {1}


@pytest.mark.lengthy
@pytest.mark.parametrize("kept_bytes", [0, 2**30])
def test_a_small_data_set_is_read_from_its_files_once(
    tmp_path: Path, reads: Counter[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(batches, "WINDOW_ROWS", 1024)
    monkeypatch.setattr(batches, "AHEAD_ROWS", 1)
    for number in range(4):
        write_shard(tmp_path, number, make_rows(24_000, seed=number))
    dataset = ShardedDataset(tuple(replace(shard, chunk_rows=1) for shard in open_dataset(tmp_path).shards))
    reader = BatchReader(dataset, seed=5, vocab_size=50, block_rows=256, kept_bytes=kept_bytes)
    for first in range(0, 3 * dataset.num_samples - 512, 512):
        reader.micro_batch(np.arange(first, first + 512))
    num_blocks = len(reader.order.blocks)
    assert len(reads) == num_blocks > 2 * LANES
    if kept_bytes:
        assert sum(reads.values()) == num_blocks
    else:  # in three epochs and the start of a fourth; a lane may end an epoch with the block that begins the next
        assert 2 * num_blocks < sum(reads.values()) < 4 * num_blocks


def test_what_a_rank_keeps_is_its_share(tmp_path: Path, reads: Counter[tuple[str, int]]) -> None:
    for number in range(4):
        write_shard(tmp_path, number, make_rows(96, seed=number))
    dataset = open_dataset(tmp_path)
    bytes_a_sample = 16 + 16 + 16 + 3 + 3 + 1
    reader = BatchReader(
        dataset, seed=5, vocab_size=50, world_size=4, kept_bytes=dataset.num_samples // 4 * bytes_a_sample
    )
    for first in range(3, 10 * dataset.num_samples, 4 * 8):
        reader.micro_batch(first + 4 * np.arange(8))
    assert set(reads.values()) == {1}
    assert len(reads) == LANES // 4 + len(reader.order.blocks) - LANES


MEMORY = """
import sys, psutil, numpy as np
from pathlib import Path
from trainer.pretraining.batches import BatchReader
from trainer.data.shards import open_dataset

dataset = open_dataset(Path(sys.argv[1]))
reader = BatchReader(dataset, seed=0, vocab_size=50, kept_bytes=int(sys.argv[2]))
for epoch in range(10):
    for first in range(epoch * dataset.num_samples, (epoch + 1) * dataset.num_samples, 64):
        reader.micro_batch(np.arange(first, first + 64))
    print(psutil.Process().memory_info().rss)
"""


@pytest.mark.lengthy
@pytest.mark.parametrize("kept_bytes", [0, 2**30])
def test_memory_stays_flat_over_ten_epochs(tmp_path: Path, kept_bytes: int) -> None:
    for number in range(4):
        write_shard(tmp_path, number, make_rows(6000, seq_length=64, seed=number))
    command = [sys.executable, "-c", MEMORY, str(tmp_path), str(kept_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes = [int(line) for line in done.stdout.split()]
    assert len(sizes) == 10
    assert max(sizes[1:]) <= 1.05 * sizes[1]
