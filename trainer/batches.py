"""Micro-batches as tensors, read from the shards a block at a time and one block ahead.

Shape suffixes: B = sequences in the micro-batch, S = tokens in a sequence, M = predictions at most in a sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trainer.data_order import BLOCK_ROWS, BlockInEpoch, DataOrder, Positions, blocks_of
from trainer.shard_file import Rows, largest_token_id, read_rows, require_vocabulary
from trainer.shards import ShardedDataset

IGNORE_INDEX = -100
"""Label of a padded prediction: torch's cross-entropy skips it by default."""

PADDING_TOKEN = 0
"""[PAD] in BERT's vocabularies; as a masked token's id it marks the end of a sequence's predictions."""

KEPT_BYTES = 256 * 2**20
"""A data set of this size, unpacked, stays in memory after its first epoch: most of reading a shard is inflating it."""


class MicroBatch(NamedTuple):
    """What one process puts through the model at once; always of the same shape, so that nothing recompiles."""

    token_ids_BS: torch.Tensor
    segment_ids_BS: torch.Tensor
    attended_BS: torch.Tensor
    """1 where there is a token, 0 on padding."""
    masked_positions_BM: torch.Tensor
    masked_labels_BM: torch.Tensor
    """Original token id; IGNORE_INDEX on padding."""
    is_random_next_B: torch.Tensor
    """0 where the second segment follows the first in the text, 1 where it was drawn at random."""

    def slice(self, start: int, stop: int) -> MicroBatch:
        """Some of the sequences; nothing is copied."""
        return MicroBatch(*(tensor[start:stop] for tensor in self))

    def to(self, device: torch.device) -> MicroBatch:
        """The same on another device."""
        return MicroBatch(*(tensor.to(device) for tensor in self))


class BatchReader:
    """Reads the samples at given positions of the stream."""

    def __init__(
        self,
        dataset: ShardedDataset,
        *,
        seed: int,
        vocab_size: int,
        block_rows: int = BLOCK_ROWS,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """
        Args:
            dataset: The shards.
            seed: Of the order of samples.
            vocab_size: Token ids have to be below it.
            block_rows: Rows read at once.
            kept_bytes: A larger data set is read from its files in every epoch.
        """
        self._dataset = dataset
        self._vocab_size = vocab_size
        self._blocks = blocks_of([shard.num_samples for shard in dataset.shards], block_rows=block_rows)
        self._rows = cache(self._rows_of) if dataset.num_bytes <= kept_bytes else self._rows_of
        self._read = ReadAhead(self._shuffled)
        self._came_from = -1
        self.order = DataOrder(self._blocks, seed=seed)
        self.seconds_waited = 0.0
        """That the training stood still for data, since the reader was made."""

    def require_readable(self, position: int) -> None:
        """Hold all shards against the vocabulary, and read the block of one position.

        Raises:
            DatasetInvalid: As `micro_batch` would.
        """
        self._dataset.require_vocabulary(self._vocab_size)
        self.micro_batch(np.array([position], dtype=np.int64))

    def micro_batch(self, positions: Positions) -> MicroBatch:
        """The samples at these positions.

        Args:
            positions: Consecutive ones.

        Raises:
            DatasetInvalid: If a shard cannot be read or holds a token that the vocabulary does not have.
        """
        began = time.perf_counter()
        first, count = int(positions[0]), len(positions)
        pieces = self.order.pieces(first, count)
        blocks = self._read([piece.source for piece in pieces], ahead=[self._ahead_of(first, count)])
        parts = [blocks[piece.source].slice(piece.start, piece.stop) for piece in pieces]
        batch = parts[0] if len(parts) == 1 else joined(parts)
        self.seconds_waited += time.perf_counter() - began
        return batch

    def _ahead_of(self, first: int, count: int) -> BlockInEpoch:
        """The block that this process comes to next, if it goes on with the stride that it has kept so far."""
        stride = first - self._came_from if 0 <= self._came_from < first else count
        self._came_from = first
        return self.order.ahead(first + count - 1, stride=stride)

    def _shuffled(self, source: BlockInEpoch) -> MicroBatch:
        """A whole block in the epoch's order, so that a micro-batch is one stretch of it."""
        order = self.order.rows(source)
        return as_micro_batch({key: values[order] for key, values in self._rows(source.block).items()})

    def _rows_of(self, number: int) -> Rows:
        block = self._blocks[number]
        path = self._dataset.shards[block.shard].path
        rows = read_rows(path, block.start, block.stop)
        require_vocabulary(path, largest_token_id(rows), self._vocab_size)
        return rows


class ReadAhead:
    """Blocks in memory: those in use, and those that come next, which a thread reads in the background."""

    def __init__(self, read: Callable[[BlockInEpoch], MicroBatch]) -> None:
        """
        Args:
            read: Reads one block; what it raises is raised where the block is used.
        """
        self._read = read
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
        self._blocks: dict[BlockInEpoch, Future[MicroBatch]] = {}

    def __call__(
        self, needed: Iterable[BlockInEpoch], *, ahead: Iterable[BlockInEpoch]
    ) -> dict[BlockInEpoch, MicroBatch]:
        """The blocks needed now; all others but those ahead are forgotten."""
        needed = list(needed)
        before, self._blocks = self._blocks, {}
        for source in (*needed, *ahead):
            if source not in self._blocks:
                self._blocks[source] = before.get(source) or self._thread.submit(self._read, source)
        for source in before.keys() - self._blocks.keys():
            before[source].cancel()
        return {source: self._blocks[source].result() for source in needed}


def as_micro_batch(rows: Rows) -> MicroBatch:
    """Rows of a shard as the tensors that the model takes."""
    labels = rows["masked_lm_ids"].astype(np.int64)
    return MicroBatch(
        token_ids_BS=_long(rows["input_ids"]),
        segment_ids_BS=_long(rows["segment_ids"]),
        attended_BS=_long(rows["input_mask"]),
        masked_positions_BM=_long(rows["masked_lm_positions"]),
        masked_labels_BM=_long(np.where(labels == PADDING_TOKEN, IGNORE_INDEX, labels)),
        is_random_next_B=_long(rows["next_sentence_labels"]),
    )


def joined(parts: Sequence[MicroBatch]) -> MicroBatch:
    """One after the other."""
    return MicroBatch(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _long(array: npt.NDArray[np.integer]) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64, copy=False))
