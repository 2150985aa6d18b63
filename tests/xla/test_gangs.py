"""Gangs on PyTorch/XLA: two processes that believe torchrun, as `simulated/sitecustomize.py` makes them.

What they trace is what they would trace on NeuronCores; the collectives themselves are run by a single device.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.xla.test_graphs import run_in, write_shard
from trainer.loop.learner import build_learner
from trainer.pretraining.bert import BertPretraining
from trainer.pretraining.config import ModelConfig

SIMULATED = Path(__file__).parent / "simulated"
SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 2500,
    "vocab_size": 3000,
    "max_position_embeddings": 16,
}
BUCKET_MIB = 1


def trained(
    folder: Path, *, steps: int, program: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Train in two processes; the graphs of each are in a file of its own, `graphs/rank-N.0`."""
    if not (folder / "data").exists():
        (folder / "data").mkdir()
        write_shard(folder / "data" / "x_training_0.hdf5")
    graphs = folder / f"graphs-{'extracted' if program else 'trained'}"
    graphs.mkdir()
    options = {
        **SHAPE,
        "data_dir": folder / "data",
        "output_dir": folder / f"run-{graphs.name}",
        "device": "xla",
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 3,
        "max_steps": 40,
        "steps_this_run": steps,
        "warmup_steps": 2,
        "bucket_mib": BUCKET_MIB,
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
    command += ["--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0", "-m", "trainer.pretrain"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    return subprocess.run(
        [*program, *command],
        env={
            **os.environ,
            "PYTHONPATH": f"{SIMULATED}:{Path(__file__).parents[2]}",
            "PJRT_DEVICE": "CPU",
            "GRAPHS_FOLDER": str(graphs),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def graphs_in(file: Path) -> list[str]:
    """The graphs that a process has run, in order; names of source lines are taken out."""
    return [
        re.sub(r", metadata=\{[^}]*\}", "", graph)
        for graph in re.findall(r"BEGIN_GRAPH\n(.*?)END_GRAPH", file.read_text(), re.DOTALL)
    ]


def buckets(sizes: list[int]) -> int:
    """How many hold tensors of these sizes, filled from the last one on."""
    count, filled = 1, 0
    for size in reversed(sizes):
        if filled and filled + size > BUCKET_MIB * 2**20:
            count, filled = count + 1, 0
        filled += size
    return count


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gang")


@pytest.fixture(scope="module")
def training(folder: Path) -> subprocess.CompletedProcess[str]:
    return trained(folder, steps=4)


@pytest.fixture(scope="module")
def extraction(folder: Path) -> subprocess.CompletedProcess[str]:
    return trained(folder, steps=10, program=("env",), NEURON_EXTRACT_GRAPHS_ONLY="1")


def test_a_gang_trains(training: subprocess.CompletedProcess[str]) -> None:
    assert training.returncode == 0, training.stderr
    assert json.loads(training.stdout.splitlines()[-1])["world_size"] == 2


def test_every_rank_traces_the_same(training: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Ranks with different graphs would wait for each other's collectives for ever."""
    one, other = (graphs_in(folder / "graphs-trained" / f"rank-{rank}.0") for rank in range(2))
    assert len(one) > 10
    assert one == other


def test_gradients_travel_in_one_collective_a_bucket(training: subprocess.CompletedProcess[str], folder: Path) -> None:
    steps = [graph for graph in graphs_in(folder / "graphs-trained" / "rank-0.0") if "all-reduce" in graph]
    assert len(steps) == 4, "gradients are exchanged once a step"
    expected = buckets([parameter.nbytes for parameter in BertPretraining(ModelConfig(**SHAPE)).parameters()])  # type: ignore[arg-type]
    assert expected > 2
    assert {len(re.findall(r" all-reduce\(", graph)) for graph in steps} == {expected}


def test_extraction_survives_outputs_of_zeros(extraction: subprocess.CompletedProcess[str]) -> None:
    assert extraction.returncode == 0, extraction.stderr


def test_extraction_sees_every_graph_of_the_training(
    extraction: subprocess.CompletedProcess[str], training: subprocess.CompletedProcess[str], folder: Path
) -> None:
    for rank in range(2):
        extracted, needed = (
            set(graphs_in(folder / f"graphs-{what}" / f"rank-{rank}.0")) for what in ("extracted", "trained")
        )
        assert needed - extracted == set()


def test_tied_weights_stay_one_on_the_device(tmp_path: Path) -> None:
    """Moving to an XLA device makes a parameter anew for each module that has it."""
    write_shard(tmp_path / "x_training_0.hdf5")
    run = run_in(tmp_path)
    model = build_learner(run, run.gang).model
    on_host = BertPretraining(run.task.config.model)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in on_host.named_parameters()]
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
