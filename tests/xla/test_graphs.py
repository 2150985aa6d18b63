"""The training on PyTorch/XLA, as on trn1, with XLA's CPU device in place of NeuronCores.

Needs an environment of its own (torch 2.9 and torch-xla 2.9, which PyTorch/XLA ends with): `make test-xla`. Shows that
the loop traces few graphs and no new ones after the second step, and reads from the device once a logged step. What it
cannot show is anything about the Neuron compiler, NeuronCores, or more than one process.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

torch_xla = pytest.importorskip("torch_xla")

import torch_xla.debug.metrics as xla_metrics  # noqa: E402

from trainer import device, training  # noqa: E402
from trainer.config import CheckpointConfig, ModelConfig, OptimizationConfig, PretrainConfig  # noqa: E402
from trainer.distributed import Gang  # noqa: E402
from trainer.journal import Journal  # noqa: E402
from trainer.run import Run  # noqa: E402
from trainer.shards import open_dataset  # noqa: E402

MAX_GRAPHS = 5
"""The first micro-batch of a step and of all others, the optimizer's first step and the others, and what is read."""


def write_shard(path: Path, *, num_samples: int = 200, seq_length: int = 16, predictions: int = 3) -> None:
    """Random tokens; the shards of the other tests come with packages that this environment has not."""
    rng = np.random.default_rng(0)
    arrays = {
        "input_ids": rng.integers(5, 50, size=(num_samples, seq_length)),
        "input_mask": np.ones((num_samples, seq_length), dtype=int),
        "segment_ids": np.zeros((num_samples, seq_length), dtype=int),
        "masked_lm_positions": np.tile([1, 2, 0], (num_samples, 1)),
        "masked_lm_ids": rng.integers(5, 50, size=(num_samples, predictions)) * [1, 1, 0],
        "next_sentence_labels": rng.integers(0, 2, size=num_samples),
    }
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values


def counted() -> tuple[int, int]:
    """Graphs compiled, and transfers from the device, of this process so far."""
    compiled = xla_metrics.metric_data("CompileTime")
    transfers = xla_metrics.metric_data("TransferFromDeviceTime")
    return (compiled[0] if compiled else 0), (transfers[0] if transfers else 0)


def run_in(folder: Path, *, optimizer: Any = "adamw", precision: Any = "float32", steps: int = -1) -> Run:
    if not (folder / "x_training_0.hdf5").exists():
        write_shard(folder / "x_training_0.hdf5")
    config = PretrainConfig(
        device="xla",
        precision=precision,
        log_steps=2,
        steps_this_run=steps,
        model=ModelConfig(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            intermediate_size=64,
            vocab_size=50,
            max_position_embeddings=16,
        ),
        optimization=OptimizationConfig(
            optimizer=optimizer, micro_batch_size=4, gradient_accumulation_steps=3, max_steps=8, warmup_steps=2
        ),
        checkpoints=CheckpointConfig(checkpoint_steps=1000),
    )
    own_device = device.choose("xla", local_rank=0, precision=precision)
    own_device.rounds_stochastically = True  # as NeuronCores do; XLA's CPU rounds to the nearest
    gang = Gang(rank=0, world_size=1, control=None)
    return Run(config, open_dataset(folder), own_device, gang, folder / "run", micro_batches=3)


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    results = []
    for name, parts in (("undisturbed", [8]), ("interrupted", [3, 5])):
        (tmp_path / name).mkdir()
        for steps in parts:
            result = training.train(run_in(tmp_path / name, steps=steps))
        assert result is not None
        results.append(torch.load(result["checkpoint"], weights_only=True))
    one, other = results
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "pure_bfloat16"])
def test_few_graphs_none_after_the_second_step_and_one_read_a_logged_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: Any, precision: Any
) -> None:
    run = run_in(tmp_path, optimizer=optimizer, precision=precision)

    at_steps: dict[int, tuple[int, int, int]] = {}
    tell = Journal.tell

    def counting(self: Journal, progress: Any, *args: Any, **options: Any) -> Any:
        before = counted()
        told = tell(self, progress, *args, **options)
        after = counted()
        at_steps[progress.step] = (*after, after[1] - before[1])
        return told

    monkeypatch.setattr(Journal, "tell", counting)
    at_start, _ = counted()
    result = training.train(run)

    assert result is not None
    assert result["steps"] == 8
    assert math.isfinite(result["last_loss"])
    assert sorted(at_steps) == [1, 2, 4, 6, 8]
    graphs = {step: compiled - at_start for step, (compiled, _, _) in at_steps.items()}
    print("graphs by step:", graphs)
    assert graphs[2] <= MAX_GRAPHS, graphs
    assert graphs[8] == graphs[2], graphs
    assert {reads for _, _, reads in at_steps.values()} == {1}
    reads = [total for _, total, _ in at_steps.values()]
    assert reads[-1] - reads[1] == len(reads) - 2, "something is read from the device between logged steps"
