"""Micro-batches as tensors, read from the shards a block at a time.

Shape suffixes: B = sequences in the micro-batch, S = tokens in a sequence, M = predictions at most in a sequence.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trainer.data_order import BLOCK_ROWS, DataOrder, Positions, blocks_of
from trainer.errors import DatasetInvalid
from trainer.shards import KEYS, Rows, ShardedDataset, read_rows

IGNORE_INDEX = -100
"""Label of a padded prediction: torch's cross-entropy skips it by default."""

PADDING_TOKEN = 0
"""[PAD] in BERT's vocabularies; as a masked token's id it marks the end of a sequence's predictions."""


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

    def to(self, device: torch.device) -> MicroBatch:
        """The same on another device."""
        return MicroBatch(*(tensor.to(device) for tensor in self))


class BatchReader:
    """Reads the samples at given positions of the stream."""

    def __init__(self, dataset: ShardedDataset, *, seed: int, vocab_size: int, block_rows: int = BLOCK_ROWS) -> None:
        """
        Args:
            dataset: The shards.
            seed: Of the order of samples.
            vocab_size: Token ids have to be below it.
            block_rows: Rows read at once.
        """
        self._dataset = dataset
        self._vocab_size = vocab_size
        self._blocks = blocks_of([shard.num_samples for shard in dataset.shards], block_rows=block_rows)
        self._read = lru_cache(maxsize=2)(self._read_block)  # a micro-batch may span the border of two
        self.order = DataOrder(self._blocks, seed=seed)

    def require_readable(self, position: int) -> None:
        """Read the block of one position.

        Raises:
            DatasetInvalid: As `micro_batch` would.
        """
        self.micro_batch(np.array([position], dtype=np.int64))

    def micro_batch(self, positions: Positions) -> MicroBatch:
        """The samples at these positions, in this order.

        Raises:
            DatasetInvalid: If a shard cannot be read or holds a token that the vocabulary does not have.
        """
        located = np.array(self.order.locate(positions))
        picked = {int(block): np.flatnonzero(located[:, 0] == block) for block in dict.fromkeys(located[:, 0].tolist())}
        parts = [
            {key: values[located[at, 1]] for key, values in self._read(block).items()} for block, at in picked.items()
        ]
        back = np.argsort(np.concatenate(list(picked.values())), kind="stable")
        return as_micro_batch({key: np.concatenate([part[key] for part in parts])[back] for key in KEYS})

    def _read_block(self, number: int) -> Rows:
        block = self._blocks[number]
        path = self._dataset.shards[block.shard].path
        rows = read_rows(path, block.start, block.stop)
        largest = max(int(rows[key].max(initial=0)) for key in ("input_ids", "masked_lm_ids"))
        if largest >= self._vocab_size:
            raise DatasetInvalid(
                f"The shard {path.name} holds the token id {largest} and --vocab_size is {self._vocab_size}; "
                "give the size of the vocabulary that the shards were made with."
            )
        return rows


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


def _long(array: npt.NDArray[np.integer]) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64))
