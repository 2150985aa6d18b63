"""The training on PyTorch/XLA, as on trn1, with XLA's CPU device in place of NeuronCores.

Needs an environment of its own (torch 2.9 and torch-xla 2.9, which PyTorch/XLA ends with): `make test-trn1`. Shows that
the loop traces few graphs and no new ones after the second step, however far the training is, and reads from the device
once a logged step. What it cannot show is anything about the Neuron compiler or NeuronCores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

torch_xla = pytest.importorskip("torch_xla")

import torch_xla.debug.metrics as xla_metrics  # noqa: E402

from trainer import device  # noqa: E402
from trainer.checkpoints import checkpoint_files  # noqa: E402
from trainer.data.shards import open_dataset  # noqa: E402
from trainer.device.distributed import Gang  # noqa: E402
from trainer.loop import training  # noqa: E402
from trainer.loop.progress_log import ProgressLog  # noqa: E402
from trainer.loop.task import TrainingProcess  # noqa: E402
from trainer.optimizers.optimization_config import OptimizationConfig  # noqa: E402
from trainer.pretraining.config import ModelConfig, PretrainConfig  # noqa: E402
from trainer.pretraining.task import Pretraining  # noqa: E402

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


def run_in(
    folder: Path,
    *,
    optimizer: Any = "adamw",
    precision: Any = "float32",
    steps: int = -1,
    log_steps: int = 2,
    **recipe: Any,
) -> TrainingProcess:
    if not (folder / "x_training_0.hdf5").exists():
        write_shard(folder / "x_training_0.hdf5")
    config = PretrainConfig(
        device="xla",
        precision=precision,
        log_steps=log_steps,
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
            **{
                "optimizer": optimizer,
                "micro_batch_size": 4,
                "gradient_accumulation_steps": 3,
                "max_steps": 8,
                "warmup_steps": 2,
                **recipe,
            }
        ),
        checkpoint_steps=100_000,
    )
    own_device = device.choose("xla", local_rank=0, precision=precision)
    own_device.rounds_stochastically = True  # as NeuronCores do; XLA's CPU rounds to the nearest
    gang = Gang(rank=0, world_size=1, control=None)
    task = Pretraining(config, open_dataset(folder), precision, micro_batches=3, world_size=1)
    return TrainingProcess(config, task, own_device, gang, folder / "run")


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


@dataclass
class LoggedStep:
    """Counters at the time of one logged step."""

    graphs: int
    """Graphs that this process has compiled since the training began."""
    reads: int
    """Reads from the device since the process began."""
    own_reads: int
    """Reads by the progress log in this step; part of `reads`."""


@pytest.fixture
def logged_steps(monkeypatch: pytest.MonkeyPatch) -> dict[int, LoggedStep]:
    """Counters of each logged step of a training, which is added as the step is logged."""
    logged: dict[int, LoggedStep] = {}
    write = ProgressLog.write
    at_start, _ = counted()

    def counting(self: ProgressLog, progress: Any, *args: Any, **options: Any) -> Any:
        _, before = counted()
        outcome = write(self, progress, *args, **options)
        graphs, reads = counted()
        logged[progress.step] = LoggedStep(graphs - at_start, reads, reads - before)
        return outcome

    monkeypatch.setattr(ProgressLog, "write", counting)
    return logged


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "pure_bfloat16"])
def test_few_graphs_none_after_the_second_step_and_one_read_a_logged_step(
    tmp_path: Path, logged_steps: dict[int, LoggedStep], optimizer: Any, precision: Any
) -> None:
    result = training.train(run_in(tmp_path, optimizer=optimizer, precision=precision))

    assert result is not None
    assert result["steps"] == 8
    assert math.isfinite(result["last_loss"])
    assert sorted(logged_steps) == [1, 2, 4, 6, 8]
    graphs = {step: found.graphs for step, found in logged_steps.items()}
    print("graphs by step:", graphs)
    assert graphs[2] <= MAX_GRAPHS, graphs
    assert graphs[8] == graphs[2], graphs
    assert {found.own_reads for found in logged_steps.values()} == {1}
    reads = [found.reads for found in logged_steps.values()]
    assert reads[-1] - reads[1] == len(reads) - 2, "something is read from the device between logged steps"


RECIPES = {
    "adamw": {"learning_rate": 4e-4, "warmup_steps": 2000},
    "lamb": {"learning_rate": 6e-3, "warmup_steps": 2000},
}
"""The tutorials' rates. As Python numbers, 1 - η λ and 1 - β₁ᵗ would become another constant of the graph in each step,
and another graph in the steps at which they begin or cease to be 1 in float32: 15 of AdamW's, 165 of LAMB's."""


@pytest.mark.parametrize("optimizer", RECIPES)
def test_three_hundred_steps_of_the_recipe_trace_what_the_first_two_did(
    tmp_path: Path, logged_steps: dict[int, LoggedStep], optimizer: str
) -> None:
    training.train(
        run_in(tmp_path, optimizer=optimizer, steps=300, log_steps=1, max_steps=40_000, **RECIPES[optimizer])
    )
    graphs = {step: found.graphs for step, found in logged_steps.items()}
    assert len(graphs) == 300
    assert set(list(graphs.values())[1:]) == {graphs[2]}, graphs
    assert graphs[2] <= MAX_GRAPHS


@pytest.mark.parametrize("crossing", [2000, 17_321, 36_720], ids=["end-of-warm-up", "float32", "float64"])
@pytest.mark.parametrize("optimizer", RECIPES)
def test_no_later_step_traces_again(
    tmp_path: Path, logged_steps: dict[int, LoggedStep], optimizer: str, crossing: int
) -> None:
    """Where 1 - β₂ᵗ becomes 1 in float32 and in Python's numbers, reached from a checkpoint of that step."""
    recipe = {"optimizer": optimizer, "log_steps": 1, "max_steps": 40_000, **RECIPES[optimizer]}
    training.train(run_in(tmp_path, steps=2, **recipe))
    put_forward(tmp_path / "run", step=crossing - 6)
    logged_steps.clear()
    training.train(run_in(tmp_path, steps=12, **recipe))
    graphs = [found.graphs for found in logged_steps.values()]
    assert list(logged_steps) == list(range(crossing - 5, crossing + 7))
    assert set(graphs[2:]) == {graphs[2]}, graphs


def put_forward(run_folder: Path, *, step: int) -> None:
    """Write the newest checkpoint again as one of another step."""
    found = checkpoint_files.newest_verified(run_folder, say=print)
    assert found is not None
    content = torch.load(found.path, weights_only=True)
    for group in content["optimizer"]["param_groups"]:
        group["step"] = step
    described = {**vars(found.record), "step": step}
    for field in ("bytes", "sha256"):
        del described[field]
    checkpoint_files.write(run_folder, lambda file: torch.save(content, file), described)
