"""Blocks are read ahead, once each, and forgotten."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.trainer.conftest import make_rows, write_shard
from trainer import batches
from trainer.batches import BatchReader, MicroBatch, ReadAhead, as_micro_batch
from trainer.data_order import BlockInEpoch, micro_batch_positions
from trainer.errors import DatasetInvalid
from trainer.shard_file import Rows
from trainer.shards import open_dataset

DEADLINE_SECONDS = 30


def blocks_numbered(*numbers: int) -> list[BlockInEpoch]:
    return [BlockInEpoch(epoch=0, block=number) for number in numbers]


class Blocks:
    """Blocks whose reading can be watched; those in `broken` cannot be read."""

    def __init__(self, *, broken: set[int] | None = None) -> None:
        self.read: list[int] = []
        self._broken = broken or set()
        self._events: dict[int, threading.Event] = {}

    def __call__(self, source: BlockInEpoch) -> MicroBatch:
        number = source.block
        self.read.append(number)
        self._event(number).set()
        if number in self._broken:
            raise DatasetInvalid(f"block {number}")
        return as_micro_batch(make_rows(2))

    def has_been_read(self, number: int) -> bool:
        return self._event(number).wait(DEADLINE_SECONDS)

    def _event(self, number: int) -> threading.Event:
        return self._events.setdefault(number, threading.Event())


def test_the_next_block_is_read_before_anybody_asks_for_it() -> None:
    blocks = Blocks()
    read = ReadAhead(blocks)
    read(blocks_numbered(0), ahead=blocks_numbered(1))
    assert blocks.has_been_read(1)
    read(blocks_numbered(1), ahead=blocks_numbered(2))
    assert blocks.has_been_read(2)
    assert blocks.read == [0, 1, 2]


def test_blocks_that_are_neither_needed_nor_ahead_are_forgotten() -> None:
    blocks = Blocks()
    read = ReadAhead(blocks)
    read(blocks_numbered(0), ahead=blocks_numbered(1))
    read(blocks_numbered(1), ahead=blocks_numbered(2))
    read(blocks_numbered(0), ahead=blocks_numbered())
    assert blocks.read.count(0) == 2


def test_a_damaged_block_is_told_of_where_it_is_used_and_not_before() -> None:
    blocks = Blocks(broken={1})
    read = ReadAhead(blocks)
    read(blocks_numbered(0), ahead=blocks_numbered(1))
    assert blocks.has_been_read(1)
    read(blocks_numbered(0), ahead=blocks_numbered(1))
    with pytest.raises(DatasetInvalid, match="block 1"):
        read(blocks_numbered(1), ahead=blocks_numbered(2))


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


@pytest.mark.parametrize(("world_size", "micro_batch_size"), [(1, 3), (2, 5), (3, 4), (4, 16)])
def test_a_rank_reads_no_block_twice_in_an_epoch(
    tmp_path: Path, reads: Counter[tuple[str, int]], world_size: int, micro_batch_size: int
) -> None:
    for number in range(4):
        write_shard(tmp_path, number, make_rows(48, seed=number))
    reader = BatchReader(open_dataset(tmp_path), seed=5, vocab_size=50, block_rows=16, kept_bytes=0)
    first = 0
    while first + world_size * micro_batch_size <= reader.order.samples_per_epoch:
        _, positions = micro_batch_positions(
            first, index=0, rank=world_size - 1, world_size=world_size, micro_batch_size=micro_batch_size
        )
        reader.micro_batch(positions)
        first += world_size * micro_batch_size
    begun_in_the_next_epoch = 2
    assert sum(reads.values()) <= 12 + begun_in_the_next_epoch


@pytest.mark.parametrize("kept_bytes", [0, 2**30])
def test_a_small_data_set_is_read_from_its_files_once(
    tmp_path: Path, reads: Counter[tuple[str, int]], kept_bytes: int
) -> None:
    for number in range(2):
        write_shard(tmp_path, number, make_rows(32, seed=number))
    dataset = open_dataset(tmp_path)
    reader = BatchReader(dataset, seed=5, vocab_size=50, block_rows=16, kept_bytes=kept_bytes)
    for first in range(0, 3 * dataset.num_samples - 8, 8):
        reader.micro_batch(np.arange(first, first + 8))
    assert dataset.num_bytes == 64 * (16 * (4 + 1 + 1) + 3 * (4 + 4) + 1)
    num_blocks, num_epochs = 4, 3
    assert len(reads) == num_blocks
    if kept_bytes:
        assert sum(reads.values()) == num_blocks
    else:
        assert num_blocks * num_epochs <= sum(reads.values()) <= num_blocks * (num_epochs + 1)


MEMORY = """
import sys, psutil, numpy as np
from pathlib import Path
from trainer.batches import BatchReader
from trainer.shards import open_dataset

dataset = open_dataset(Path(sys.argv[1]))
reader = BatchReader(dataset, seed=0, vocab_size=50, kept_bytes=int(sys.argv[2]))
for epoch in range(10):
    for first in range(epoch * dataset.num_samples, (epoch + 1) * dataset.num_samples, 64):
        reader.micro_batch(np.arange(first, first + 64))
    print(psutil.Process().memory_info().rss)
"""


@pytest.mark.parametrize("kept_bytes", [0, 2**30])
def test_memory_stays_flat_over_ten_epochs(tmp_path: Path, kept_bytes: int) -> None:
    for number in range(4):
        write_shard(tmp_path, number, make_rows(6000, seq_length=64, seed=number))
    command = [sys.executable, "-c", MEMORY, str(tmp_path), str(kept_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes = [int(line) for line in done.stdout.split()]
    assert len(sizes) == 10
    assert max(sizes[1:]) <= 1.05 * sizes[1]
