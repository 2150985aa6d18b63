"""What the benchmark of the trainer compares has to be the same work: the same samples, and the same steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.contestants import Sizes
from benchmarks.seed_recipe import IGNORE_INDEX, ShardSamples, read_batches
from benchmarks.trainer import CONTESTANTS, Steps, in_turns
from tests.unit.trainer.conftest import make_rows, write_shard
from trainer.data.shard_file import read_rows
from trainer.pretraining.batches import as_micro_batch


def test_the_seeds_samples_hold_what_the_trainers_do(tmp_path: Path) -> None:
    path = write_shard(tmp_path, 0, make_rows(6))
    batch = as_micro_batch(read_rows(path, 0, 6))
    for row, (tokens, segments, mask, labels, is_random_next) in enumerate(
        map(ShardSamples(path).__getitem__, range(6))
    ):
        assert torch.equal(tokens, batch.token_ids_BS[row])
        assert torch.equal(segments, batch.segment_ids_BS[row])
        assert torch.equal(mask, batch.attended_BS[row])
        assert is_random_next == batch.is_random_next_B[row]
        real = batch.masked_labels_BM[row] != IGNORE_INDEX
        assert torch.equal(labels[batch.masked_positions_BM[row][real]], batch.masked_labels_BM[row][real])
        assert int((labels != IGNORE_INDEX).sum()) == int(real.sum())


def test_the_seeds_loader_drops_what_does_not_fill_a_batch(tmp_path: Path) -> None:
    path = write_shard(tmp_path, 0, make_rows(7))
    assert [len(tokens) for tokens, *_ in read_batches(path, 3)] == [3, 3]


@pytest.mark.slow
def test_the_contestants_learn_the_same_from_the_same(tmp_path: Path) -> None:
    """All of them as they are measured, with a model that is small enough for a test."""
    write_shard(tmp_path, 0, make_rows(64))
    sizes = Sizes(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64)
    names = [name for name in CONTESTANTS if name not in ("gemm", "good_compiled")]
    steps = Steps({}, in_turns(tmp_path, sizes, names, 3, dropout=0.0))
    assert steps.largest_difference_of_losses < 1e-4
    assert [len(taken) for taken in steps.compared.values()] == [3] * 3
