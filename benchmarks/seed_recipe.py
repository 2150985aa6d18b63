"""The reference for the trainer: one step and the loader of the tutorial's pretraining script, written again.

Like `dp_bert_large_hf_pretrain_hdf5.py` it reads whole shards, turns one sample at a time into tensors with labels of
full length, lets a DataLoader stack them, puts them through Hugging Face's BertForPreTraining, and reads the loss from
the device in every step. Left out is what needs XLA; in its place stands what a CPU does at that point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from transformers import BertConfig, BertForPreTraining

from trainer.pretraining.batches import MicroBatch

KEYS = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "next_sentence_labels",
)
MAX_PREDICTIONS = 20
IGNORE_INDEX = -100
BETAS = (0.9, 0.999)
EPS = 1e-6
MAX_GRAD_NORM = 1.0
Sample = tuple[torch.Tensor, ...]


class ShardSamples(Dataset[Sample]):
    """All samples of one shard in memory, handed out one by one."""

    def __init__(self, path: Path) -> None:
        with h5py.File(path) as file:
            self._arrays = [np.asarray(file[key][:]) for key in KEYS]

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getitem__(self, index: int) -> Sample:
        tokens, mask, segments, positions, originals, is_random_next = (
            torch.from_numpy(np.asarray(array[index].astype(np.int64))) for array in self._arrays
        )
        labels = torch.full(tokens.shape, IGNORE_INDEX, dtype=torch.long)
        padding = (positions == 0).nonzero()
        count = int(padding[0].item()) if len(padding) else MAX_PREDICTIONS
        labels[positions[:count]] = originals[:count]
        return tokens, segments, mask, labels, is_random_next


def read_batches(shard: Path, batch_size: int) -> DataLoader[Sample]:
    """The shard in random order; the samples that do not fill a batch are dropped, as in the tutorial."""
    samples = ShardSamples(shard)
    return DataLoader(samples, sampler=RandomSampler(samples), batch_size=batch_size, num_workers=0, drop_last=True)


class TutorialsAdamW(torch.optim.AdamW):
    """AdamW as the tutorial has it: biases and layer norms are not decayed, and epsilon is added before the mean of
    squares is corrected for its start, which torch's does behind that."""

    def __init__(self, model: nn.Module, *, learning_rate: float, fused: bool) -> None:
        """
        Args:
            model: What is trained.
            learning_rate: The same in every step.
            fused: Whether one kernel changes all weights; the tutorial's own does not.
        """
        decayed = [p for name, p in model.named_parameters() if "bias" not in name and "LayerNorm" not in name]
        kept = [p for name, p in model.named_parameters() if "bias" in name or "LayerNorm" in name]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": kept, "weight_decay": 0.0}]
        super().__init__(groups, lr=learning_rate, betas=BETAS, fused=fused)
        self._steps = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._steps += 1
        for group in self.param_groups:
            group["eps"] = EPS / math.sqrt(1 - BETAS[1] ** self._steps)
        super().step(closure)


class SeedTraining:
    """The tutorial's model and optimizer; `step` is one pass of its loop without accumulation."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Any], *, learning_rate: float) -> None:
        """
        Args:
            config: The model.
            weights: What it begins with.
            learning_rate: The same in every step.
        """
        self._model = BertForPreTraining(config).train()
        self._model.load_state_dict(weights)
        self._optimizer = TutorialsAdamW(self._model, learning_rate=learning_rate, fused=False)
        self._running_loss = torch.zeros(1, dtype=torch.double)

    def step(self, batch: MicroBatch) -> float:
        """One step; its loss, read from the device."""
        outputs = self._model(
            input_ids=batch.token_ids_BS,
            attention_mask=batch.attended_BS,
            token_type_ids=batch.segment_ids_BS,
            labels=masked_labels(batch),
            next_sentence_label=batch.is_random_next_B,
        )
        outputs.loss.backward()
        self._running_loss += outputs.loss.detach()
        loss = float(self._running_loss.cpu().item())
        self._running_loss.zero_()
        nn.utils.clip_grad_norm_(self._model.parameters(), MAX_GRAD_NORM)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss


def masked_labels(batch: MicroBatch) -> torch.Tensor:
    """The original token at every masked position of a sequence, as the tutorial's samples have it."""
    labels = torch.full_like(batch.token_ids_BS, IGNORE_INDEX)
    real = batch.masked_labels_BM != IGNORE_INDEX
    rows = torch.arange(len(labels)).unsqueeze(-1).expand_as(real)
    labels[rows[real], batch.masked_positions_BM[real]] = batch.masked_labels_BM[real]
    return labels
