"""The trainer beside the tutorial's script: the same model, batch, data and threads, in turns, in one process.

Says how many times as fast a step and the loader are, which share of a step waits for data, and how many CPU seconds
the training takes to import, alone and with Hugging Face's model beside it. Numbers are medians. `loader` is for a
data set that fits into memory, over several epochs. `loader_block_reader` and `loader_block_reader_from_memory`
compare with a plain reader of blocks, in CPU seconds: what an engineer writes with h5py in ten lines. The first is for
a data set that is read from its files, where both sides inflate the same chunks and little else is left.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from benchmarks.result import Result, this_machine
from trainer.shard_file import KEYS

if TYPE_CHECKING:
    import torch

    from trainer.run import Run
    from trainer.shards import ShardedDataset

BATCH_SIZE = 16
MAX_SEQ_LENGTH = 128
VOCAB_SIZE = 30522
LEARNING_RATE = 1e-4

NUM_SHARDS = 5
PASSES = 24
LOADER_EPOCHS = 4
COPIES = 24
"""Names under which the shards are read from their files: half a million samples."""
PLAIN_ROWS = 4096

MODELS: Mapping[str, tuple[int, int, int, int]] = {
    "step_4l_h256": (4, 256, 4, 1024),
    "step_2l_h1024": (2, 1024, 16, 4096),
}
"""Layers, hidden size, attention heads, intermediate size."""

WARM_UP_STEPS = 3
STEPS = 15
IMPORTS = 5

WITHOUT_TRANSFORMERS = "import trainer.training"
WITH_TRANSFORMERS = "import trainer.training, transformers.models.bert.modeling_bert"


@dataclass(frozen=True)
class Pair:
    """The same work twice: seconds each time, for the tutorial's way and for the trainer's."""

    seed: list[float]
    ours: list[float]

    @property
    def ratio(self) -> float:
        """How many times as fast as the tutorial's the trainer is."""
        return round(statistics.median(self.seed) / statistics.median(self.ours), 2)

    @property
    def seconds(self) -> dict[str, float]:
        return {"seed": _rounded(statistics.median(self.seed)), "ours": _rounded(statistics.median(self.ours))}


def run() -> Result:
    """Measures all of it; some minutes on two cores."""
    with tempfile.TemporaryDirectory(prefix="trainflow-trainer-") as folder, redirect_stdout(sys.stderr):
        shards = write_shards(Path(folder) / "data")
        steps, waits = {}, {}
        for name, sizes in MODELS.items():
            print(f"{name}: {STEPS} steps of each …", file=sys.stderr, flush=True)
            steps[name], waits[name] = measure_steps(shards, Path(folder), sizes)
        print("loader …", file=sys.stderr, flush=True)
        loaders = {"loader": measure_loader(shards, kept_bytes=2**30)}
        for name, pair in measure_block_reader(shards).items():
            loaders[name] = pair
    print("imports …", file=sys.stderr, flush=True)
    imports = interleaved(
        lambda: _import(WITH_TRANSFORMERS),
        lambda: _import(WITHOUT_TRANSFORMERS),
        times=IMPORTS,
        warm_up=1,
        clock=_children_cpu_seconds,
    )
    return summary(steps, waits, loaders, imports)


def summary(
    steps: Mapping[str, Pair], waits: Mapping[str, float], loaders: Mapping[str, Pair], imports: Pair
) -> Result:
    """All of it in one object; a share is a ratio too."""
    import torch

    return Result(
        benchmark="trainer",
        ratios={
            **{name: pair.ratio for name, pair in steps.items()},
            **{name: pair.ratio for name, pair in loaders.items()},
            **{f"data_wait_share_{name}": round(share, 5) for name, share in waits.items()},
            "import_cpu_seconds": _rounded(statistics.median(imports.ours)),
            "import_without_to_with_transformers": round(1 / imports.ratio, 2),
        },
        seconds={
            **{name: pair.seconds for name, pair in steps.items()},
            **{f"{name}_per_shard": pair.seconds for name, pair in loaders.items()},
            "import": {
                "with_transformers": _rounded(statistics.median(imports.seed)),
                "without_transformers": _rounded(statistics.median(imports.ours)),
            },
        },
        machine={**this_machine(), "torch": torch.__version__, "threads": torch.get_num_threads()},
        details={
            "batch_size": BATCH_SIZE,
            "max_seq_length": MAX_SEQ_LENGTH,
            "vocab_size": VOCAB_SIZE,
            "steps": STEPS,
        },
    )


def interleaved(
    seed: Callable[[], object],
    ours: Callable[[], object],
    *,
    times: int,
    warm_up: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Pair:
    """Time both in turns, so that whatever else the machine does slows both down."""
    pair = Pair([], [])
    for turn in range(-warm_up, times):
        for work, seconds in ((seed, pair.seed), (ours, pair.ours)):
            began = clock()
            work()
            if turn >= 0:
                seconds.append(clock() - began)
    return pair


def measure_steps(shards: list[Path], folder: Path, sizes: tuple[int, int, int, int]) -> tuple[Pair, float]:
    """One step of each: data, forward, backward, clipping, optimizer, and the loss as a number.

    Returns:
        The times, and the share of the trainer's that it waited for data.
    """
    from transformers import BertConfig

    from benchmarks.seed_recipe import SeedTraining

    layers, hidden, heads, intermediate = sizes
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=intermediate,
    )
    seed = SeedTraining(config, shards, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    ours = OurTraining(_run_of(shards[0].parent, folder, sizes))
    pair = interleaved(seed.step, ours.step, times=STEPS, warm_up=WARM_UP_STEPS)
    return pair, statistics.median(ours.waits[WARM_UP_STEPS:]) / statistics.median(pair.ours)


class OurTraining:
    """The functions that the trainer's loop calls in a step."""

    def __init__(self, run: Run) -> None:
        from trainer.checkpoint import Progress
        from trainer.learner import build_learner

        self._run = run
        self._reader = run.task.open_batches(run.gang)
        self._learner = build_learner(run, run.gang)
        self._progress = Progress()
        self.waits: list[float] = []
        """Seconds that each step waited for data."""

    def step(self) -> float:
        """One step; its loss, read from the device."""
        from trainer.learner import take_step
        from trainer.training import accumulate_gradients

        waited = self._reader.seconds_waited
        losses = accumulate_gradients(self._run, self._learner, self._reader, self._progress)
        take_step(self._run, self._learner, LEARNING_RATE)
        self._progress = self._progress.after_step(BATCH_SIZE)
        self.waits.append(self._reader.seconds_waited - waited)
        return float(losses.sum().item())


def measure_loader(shards: list[Path], *, kept_bytes: int) -> Pair:
    """One shard's samples after the other, from file to tensors, over several epochs.

    Args:
        shards: The data set.
        kept_bytes: What the trainer may keep in memory from one epoch to the next; the tutorial keeps nothing.
    """
    from benchmarks.seed_recipe import batches_of
    from trainer.batches import BatchReader
    from trainer.shards import open_dataset

    dataset = open_dataset(shards[0].parent)
    reader = BatchReader(dataset, seed=0, vocab_size=VOCAB_SIZE, kept_bytes=kept_bytes)
    num_samples = dataset.num_samples // len(shards) // BATCH_SIZE * BATCH_SIZE
    order = iter(shards * LOADER_EPOCHS)
    position = 0

    def seed() -> None:
        for _ in batches_of(next(order), BATCH_SIZE):
            pass

    def ours() -> None:
        nonlocal position
        end = position + num_samples
        for first in range(position, end, BATCH_SIZE):
            reader.micro_batch(np.arange(first, first + BATCH_SIZE))
        position = end

    return interleaved(seed, ours, times=LOADER_EPOCHS * len(shards))


def measure_block_reader(shards: list[Path]) -> dict[str, Pair]:
    """CPU seconds an epoch, of all threads: from files, and from memory against the same plain reader of files.

    From files the data set is the shards under many names, so that it is as large as one that is not kept.
    """
    from trainer.shards import open_dataset

    folder = shards[0].parent.parent / "many"
    folder.mkdir()
    for copy in range(COPIES):
        for number, shard in enumerate(shards):
            (folder / f"copy_training_{copy * len(shards) + number}.hdf5").hardlink_to(shard)
    from_files, from_memory = open_dataset(folder), open_dataset(shards[0].parent)
    return {
        "loader_block_reader": _epochs(from_files, kept_bytes=0, times=2),
        "loader_block_reader_from_memory": _epochs(from_memory, kept_bytes=2**30, times=LOADER_EPOCHS),
    }


def _epochs(dataset: ShardedDataset, *, kept_bytes: int, times: int) -> Pair:
    """The data set as often through the plain reader and through the trainer's."""
    from trainer.batches import BatchReader

    reader = BatchReader(dataset, seed=0, vocab_size=VOCAB_SIZE, kept_bytes=kept_bytes)
    num_samples = dataset.num_samples // BATCH_SIZE * BATCH_SIZE
    epochs = itertools.count()

    def ours() -> None:
        begin = next(epochs) * num_samples
        for first in range(begin, begin + num_samples, BATCH_SIZE):
            reader.micro_batch(np.arange(first, first + BATCH_SIZE))

    def plain() -> None:
        for shard in dataset.shards:
            for _ in plain_batches(shard.path, BATCH_SIZE):
                pass

    return interleaved(plain, ours, times=times, warm_up=1, clock=time.process_time)


def plain_batches(path: Path, batch_size: int) -> Iterator[list[torch.Tensor]]:
    """A shard's rows, 4,096 at a time, shuffled among themselves; nothing is checked, nothing marked as ignored."""
    import torch

    with h5py.File(path) as file:
        for start in range(0, len(file["input_ids"]), PLAIN_ROWS):
            arrays = [file[key][start : start + PLAIN_ROWS] for key in KEYS]
            order = np.random.permutation(len(arrays[0]))
            tensors = [torch.from_numpy(array[order].astype(np.int64)) for array in arrays]
            for first in range(0, len(order) - batch_size + 1, batch_size):
                yield [tensor[first : first + batch_size] for tensor in tensors]


def write_shards(folder: Path) -> list[Path]:
    """The text that comes with Python as samples: some 20,000."""
    arguments = ["--out", str(folder), "--num_shards", str(NUM_SHARDS), "--passes", str(PASSES)]
    subprocess.run([sys.executable, "-m", "trainer.corpus", *arguments], check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.hdf5"))


def _run_of(data: Path, folder: Path, sizes: tuple[int, int, int, int]) -> Run:
    from trainer import device
    from trainer.config import ModelConfig, OptimizationConfig, PretrainConfig
    from trainer.distributed import Gang
    from trainer.pretraining.task import Pretraining
    from trainer.run import Run
    from trainer.shards import open_dataset

    layers, hidden, heads, intermediate = sizes
    config = PretrainConfig(
        device="cpu",
        compile=False,
        model=ModelConfig(
            num_hidden_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            intermediate_size=intermediate,
            vocab_size=VOCAB_SIZE,
        ),
        optimization=OptimizationConfig(micro_batch_size=BATCH_SIZE, gradient_accumulation_steps=1),
    )
    gang = Gang(rank=0, world_size=1, control=None)
    task = Pretraining(config, open_dataset(data), "float32", micro_batches=1, world_size=1)
    return Run(config, task, device.choose("cpu", local_rank=0), gang, folder)


def _children_cpu_seconds() -> float:
    """Of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _import(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)


def _rounded(seconds: float) -> float:
    return round(seconds, 4)
