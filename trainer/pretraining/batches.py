"""Micro-batches as tensors, read from the shards a block at a time and one block ahead.

Shape suffixes: B = sequences in the micro-batch, S = tokens in a sequence, M = predictions at most in a sequence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trainer.data.data_order import BLOCK_ROWS, DataOrder, Positions, cut_blocks
from trainer.data.shard_file import Rows, largest_token_id, read_rows, require_vocabulary
from trainer.data.shards import ShardedDataset
from trainer.device import Device

IGNORE_INDEX = -100
"""Label of a padded prediction: torch's cross-entropy skips it by default."""

PADDING_TOKEN = 0
"""[PAD] in BERT's vocabularies; as a masked token's id it marks the end of a sequence's predictions."""

KEPT_BYTES = 512 * 2**20
"""A rank's share of the data set stays in memory after the first epoch if it is at most this large: most of reading a
shard is inflating it. A single-process training that does not keep its data holds a block of each lane, some 300
MiB."""

WINDOW_ROWS = 4096
"""Rows that are put together at once: 2.4 MB of 128 tokens, and 64 rows of each lane in a single-process training."""

AHEAD_ROWS = 1024
"""Rows of a lane that remain when its next block is read in the background."""

Packed = npt.NDArray[np.void]
"""Samples as records, by the keys of a shard."""


class MicroBatch(NamedTuple):
    """One micro-batch; always of the same shape, so that nothing is compiled again."""

    token_ids_BS: torch.Tensor
    segment_ids_BS: torch.Tensor
    attended_BS: torch.Tensor | None
    """1 where there is a token, 0 on padding; None, on some devices, for a batch without padding."""
    masked_positions_BM: torch.Tensor
    masked_labels_BM: torch.Tensor
    """Original token id; IGNORE_INDEX on padding."""
    is_random_next_B: torch.Tensor
    """0 where the second segment follows the first in the text, 1 where it was drawn at random."""

    def on(self, device: Device) -> MicroBatch:
        """The batch on a device. A batch without padding drops its mask if attention is faster without one."""
        attended_BS = None if device.attends_faster_without_mask and self.is_full else self.attended_BS
        return MicroBatch(
            token_ids_BS=device.load(self.token_ids_BS),
            segment_ids_BS=device.load(self.segment_ids_BS),
            attended_BS=None if attended_BS is None else device.load(attended_BS),
            masked_positions_BM=device.load(self.masked_positions_BM),
            masked_labels_BM=device.load(self.masked_labels_BM),
            is_random_next_B=device.load(self.is_random_next_B),
        )

    @property
    def is_full(self) -> bool:
        """Whether the batch is without padding; waits for the device that the batch is on."""
        return self.attended_BS is None or bool(self.attended_BS.all())


class BatchReader:
    """Reads the samples at one rank's positions of the stream, which are all equal modulo the world size.

    Rows are put together in windows, many micro-batches at once: a micro-batch's rows come from as many blocks as it
    has rows, and taking them one by one would cost more than all the rest.
    """

    def __init__(
        self,
        dataset: ShardedDataset,
        *,
        seed: int,
        vocab_size: int,
        world_size: int = 1,
        block_rows: int = BLOCK_ROWS,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """
        Args:
            dataset: The shards.
            seed: Seed of the order of samples.
            vocab_size: Token ids have to be below it.
            world_size: Number of processes.
            block_rows: Rows read at once.
            kept_bytes: If this rank's share is larger, it is read from its files in every epoch.
        """
        self._dataset = dataset
        self._vocab_size = vocab_size
        self._dtype = packed_dtype(dataset, vocab_size)
        samples_per_shard = [shard.num_samples for shard in dataset.shards]
        chunk_rows = [shard.chunk_rows for shard in dataset.shards]
        self.order = DataOrder(cut_blocks(samples_per_shard, chunk_rows=chunk_rows, block_rows=block_rows), seed=seed)
        self._step = math.gcd(world_size, self.order.lanes)
        self._offset = 0
        self._window_rows = min(WINDOW_ROWS, -(-dataset.num_samples // self._step))
        keeps = dataset.num_samples * self._dtype.itemsize <= kept_bytes * self._step
        self._blocks = ReadAhead(cache(self._block) if keeps else self._block)
        self._windows: dict[int, Packed] = {}
        self.seconds_waited = 0.0
        """Time that the training has waited for samples since the reader was made."""

    def require_readable(self, position: int) -> None:
        """Check all shards against the vocabulary, and read the block of one position.

        Raises:
            DatasetInvalid: For the reasons that `micro_batch` names.
        """
        self._dataset.require_vocabulary(self._vocab_size)
        self._blocks(self.order.blocks_between(position, 1), ahead=[])

    def micro_batch(self, positions: Positions) -> MicroBatch:
        """The samples at these positions.

        Args:
            positions: Ascending, equally far apart, and equal modulo the world size.

        Raises:
            DatasetInvalid: If a shard cannot be read or holds a token that the vocabulary does not have.
        """
        began = time.perf_counter()
        (first, offset), last = divmod(int(positions[0]), self._step), int(positions[-1]) // self._step
        if offset != self._offset:  # after a resume with another world size
            self._offset, self._windows = offset, {}
        stride = (last - first) // (len(positions) - 1) if len(positions) > 1 else 1
        parts = [
            window[first - start if start <= first else (first - start) % stride : last + 1 - start : stride]
            for start, window in self._windows_from(first, last)
        ]
        batch = as_micro_batch(parts[0] if len(parts) == 1 else np.concatenate(parts))
        self.seconds_waited += time.perf_counter() - began
        return batch

    def _windows_from(self, first: int, last: int) -> Iterator[tuple[int, Packed]]:
        """The windows that hold these positions of this rank, each with its first position; earlier windows are
        dropped."""
        numbers = range(first // self._window_rows, last // self._window_rows + 1)
        for number in [number for number in self._windows if number not in numbers]:
            del self._windows[number]
        for number in numbers:
            if number not in self._windows:
                self._windows[number] = self._window(number)
            yield number * self._window_rows, self._windows[number]

    def _window(self, number: int) -> Packed:
        """Put together the rows of so many positions of this rank, and start to read the blocks of later ones."""
        first = self._offset + number * self._window_rows * self._step
        ahead = self._window_rows + min(AHEAD_ROWS * self.order.lanes, self.order.samples_per_epoch) // self._step
        needed = self.order.blocks_between(first, self._window_rows, step=self._step)
        blocks = self._blocks(needed, ahead=self.order.blocks_between(first, ahead, step=self._step))
        window = np.empty(self._window_rows, dtype=self._dtype)
        out = _opaque(window)
        for piece in self.order.pieces(first, self._window_rows, step=self._step):
            out[piece.places] = _opaque(blocks[piece.block])[piece.rows]
        return window

    def _block(self, number: int) -> Packed:
        block = self.order.blocks[number]
        path = self._dataset.shards[block.shard].path
        rows = read_rows(path, block.start, block.stop)
        require_vocabulary(path, largest_token_id(rows), self._vocab_size)
        return packed(rows, self._dtype)


class ReadAhead:
    """Blocks in memory: those in use, and the next ones, which a thread reads in the background."""

    def __init__(self, read: Callable[[int], Packed]) -> None:
        """
        Args:
            read: Reads one block; what it raises is raised where the block is used.
        """
        self._read = read
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
        self._blocks: dict[int, Future[Packed]] = {}

    def __call__(self, needed: Iterable[int], *, ahead: Iterable[int]) -> dict[int, Packed]:
        """Return the blocks that are needed now; others are dropped, except for those read ahead."""
        needed = list(needed)
        before, self._blocks = self._blocks, {}
        for source in (*needed, *ahead):
            if source not in self._blocks:
                self._blocks[source] = before.get(source) or self._thread.submit(self._read, source)
        for source in before.keys() - self._blocks.keys():
            before[source].cancel()
        return {source: self._blocks[source].result() for source in needed}


def packed_dtype(dataset: ShardedDataset, vocab_size: int) -> np.dtype[np.void]:
    """Store a sample as a record, in the smallest types that hold the values of a valid shard."""
    length, predictions = dataset.max_seq_length, dataset.max_predictions
    token, position = np.min_scalar_type(vocab_size - 1), np.min_scalar_type(length - 1)
    return np.dtype(
        [
            ("input_ids", token, (length,)),
            ("input_mask", np.uint8, (length,)),
            ("segment_ids", np.uint8, (length,)),
            ("masked_lm_positions", position, (predictions,)),
            ("masked_lm_ids", token, (predictions,)),
            ("next_sentence_labels", np.uint8),
        ]
    )


def packed(rows: Rows, dtype: np.dtype[np.void]) -> Packed:
    """Rows of a shard, checked before, as records."""
    records = np.empty(len(rows["next_sentence_labels"]), dtype=dtype)
    for key, values in rows.items():
        records[key] = values
    return records


def _opaque(records: Packed) -> Packed:
    """The same memory as bytes without fields: numpy copies those at once, and records field by field."""
    return records.view(np.dtype((np.void, records.dtype.itemsize)))


def as_micro_batch(rows: Rows | Packed) -> MicroBatch:
    """Rows of a shard as the tensors that the model takes."""
    labels = rows["masked_lm_ids"].astype(np.int64)
    labels[labels == PADDING_TOKEN] = IGNORE_INDEX
    return MicroBatch(
        token_ids_BS=_long(rows["input_ids"]),
        segment_ids_BS=_long(rows["segment_ids"]),
        attended_BS=_long(rows["input_mask"]),
        masked_positions_BM=_long(rows["masked_lm_positions"]),
        masked_labels_BM=torch.from_numpy(labels),
        is_random_next_B=_long(rows["next_sentence_labels"]),
    )


def _long(array: npt.NDArray[np.integer]) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64))
