"""Compares the trainer with the tools that an engineer would otherwise use: the same model, weights, batches and
threads, in turns.

A step is compared with the tutorial's and with a good engineer's (`benchmarks.contestants`), in CPU seconds of all
threads; the losses of a few steps without dropout are compared, too. `gemm_peak_2l_h1024` is the rate of a step's own
operations as a share of the machine's rate in matrix products.

`loader` is for a data set that fits into memory, over several epochs, beside the tutorial's. `loader_block_reader` and
`loader_block_reader_from_memory` compare with a plain reader of blocks, in CPU seconds: what an engineer writes with
h5py in ten lines. The first is for a data set that is read from its files, where both sides inflate the same chunks and
little else is left. `import_cpu_seconds` is what the training takes to import. Numbers are medians.
"""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from benchmarks.contestants import BATCH_SIZE, MAX_SEQ_LENGTH, VOCAB_SIZE, Sizes, Taken
from benchmarks.result import Result, this_machine
from trainer.data.shard_file import KEYS

if TYPE_CHECKING:
    import torch

    from trainer.data.shards import ShardedDataset

NUM_SHARDS = 5
PASSES = 24
LOADER_EPOCHS = 4
COPIES = 24
"""Names of the shards that are read from their files: half a million samples."""
PLAIN_ROWS = 4096

MODELS: Mapping[str, Sizes] = {"4l_h256": Sizes(4, 256, 4, 1024), "2l_h1024": Sizes(2, 1024, 16, 4096)}

CONTESTANTS = ("tutorial", "good_eager", "good_compiled", "ours", "gemm")
WARM_UP_STEPS = 3
STEPS = 15
COMPARED_STEPS = 5
"""Steps without dropout whose losses are compared."""
DROPOUT = 0.1

IMPORTS = 5

WITHOUT_TRANSFORMERS = "import trainer.loop.training"
WITH_TRANSFORMERS = "import trainer.loop.training, transformers.models.bert.modeling_bert"


@dataclass(frozen=True)
class Pair:
    """Times of the same work in another implementation and in the trainer's, in seconds."""

    seed: list[float]
    ours: list[float]

    @property
    def ratio(self) -> float:
        """Speed of the trainer relative to the other implementation."""
        return round(statistics.median(self.seed) / statistics.median(self.ours), 2)

    @property
    def seconds(self) -> dict[str, float]:
        """The medians."""
        return {"seed": _rounded(statistics.median(self.seed)), "ours": _rounded(statistics.median(self.ours))}


@dataclass(frozen=True)
class Steps:
    """The steps of all contestants with one model."""

    timed: Mapping[str, Sequence[Taken]]
    """Steps with dropout, taken in turns."""
    compared: Mapping[str, Sequence[Taken]]
    """The first steps without dropout."""

    def cpu_seconds(self, name: str) -> float:
        """Median of a step."""
        return statistics.median(step.cpu_seconds for step in self.timed[name])

    @property
    def best_of_a_good_engineer(self) -> float:
        """CPU seconds of the faster of the two good implementations."""
        return min(self.cpu_seconds(name) for name in self.timed if name.startswith("good_"))

    @property
    def share_of_gemm_peak(self) -> float:
        """Operations of the trainer per CPU second, as a share of those of plain matrix products."""
        ours, gemm = (
            statistics.median(step.operations / step.cpu_seconds for step in self.timed[name])
            for name in ("ours", "gemm")
        )
        return ours / gemm

    @property
    def share_waited(self) -> float:
        """Share of the trainer's steps that they waited for data."""
        ours = self.timed["ours"]
        return statistics.median(step.waited for step in ours) / statistics.median(step.seconds for step in ours)

    @property
    def largest_difference_of_losses(self) -> float:
        """Largest difference of the loss, in nats, between the trainer and any other contestant at the same step."""
        return max(
            abs(own.loss - other.loss)
            for name, others in self.compared.items()
            for own, other in zip(self.compared["ours"], others, strict=True)
        )


def run() -> Result:
    """Measures all of it; some minutes on two cores."""
    with tempfile.TemporaryDirectory(prefix="trainflow-trainer-") as folder, redirect_stdout(sys.stderr):
        shards = write_shards(Path(folder) / "data")
        steps = {}
        for name, sizes in MODELS.items():
            print(f"{name}: {STEPS} steps of each …", file=sys.stderr, flush=True)
            steps[name] = measure_steps(shards[0].parent, sizes)
        print("loader …", file=sys.stderr, flush=True)
        loaders = {"loader": measure_loader(shards, kept_bytes=2**30), **measure_block_reader(shards)}
    print("imports …", file=sys.stderr, flush=True)
    imports = interleaved(
        lambda: _import(WITH_TRANSFORMERS),
        lambda: _import(WITHOUT_TRANSFORMERS),
        times=IMPORTS,
        warm_up=1,
        clock=_children_cpu_seconds,
    )
    return summary(steps, loaders, imports)


def summary(steps: Mapping[str, Steps], loaders: Mapping[str, Pair], imports: Pair) -> Result:
    """All of it in one object; a share is a ratio too."""
    import torch

    ratios: dict[str, float] = {}
    for name, measured in steps.items():
        ours = measured.cpu_seconds("ours")
        ratios[f"step_{name}"] = round(measured.cpu_seconds("tutorial") / ours, 2)
        ratios[f"good_{name}"] = round(measured.best_of_a_good_engineer / ours, 2)
        ratios[f"gemm_peak_{name}"] = round(measured.share_of_gemm_peak, 3)
        ratios[f"data_wait_share_{name}"] = round(measured.share_waited, 5)
    return Result(
        benchmark="trainer",
        ratios={
            **ratios,
            **{name: pair.ratio for name, pair in loaders.items()},
            "import_cpu_seconds": _rounded(statistics.median(imports.ours)),
            "import_without_to_with_transformers": round(1 / imports.ratio, 2),
        },
        seconds={
            **{
                f"step_cpu_{name}": {who: _rounded(measured.cpu_seconds(who)) for who in measured.compared}
                for name, measured in steps.items()
            },
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
            "largest_difference_of_losses": {
                name: round(measured.largest_difference_of_losses, 7) for name, measured in steps.items()
            },
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
    """Time both in turns, so that other load of the machine slows both down."""
    pair = Pair([], [])
    for turn in range(-warm_up, times):
        for work, seconds in ((seed, pair.seed), (ours, pair.ours)):
            began = clock()
            work()
            if turn >= 0:
                seconds.append(clock() - began)
    return pair


def measure_steps(data: Path, sizes: Sizes) -> Steps:
    """Steps of all contestants: forward, backward, clipping, optimizer, and the loss as a number."""
    compared = in_turns(data, sizes, [name for name in CONTESTANTS if name != "gemm"], COMPARED_STEPS, dropout=0.0)
    timed = in_turns(data, sizes, CONTESTANTS, WARM_UP_STEPS + STEPS, dropout=DROPOUT)
    return Steps({name: steps[WARM_UP_STEPS:] for name, steps in timed.items()}, compared)


def in_turns(data: Path, sizes: Sizes, names: Sequence[str], times: int, *, dropout: float) -> dict[str, list[Taken]]:
    """Take steps of each contestant in turns, so that other load of the machine slows all of them down."""
    taken: dict[str, list[Taken]] = {name: [] for name in names}
    with ExitStack() as stack:
        processes = {}
        for name in names:
            command = [sys.executable, "-m", "benchmarks.contestants", name, str(data)]
            command += [json.dumps(asdict(sizes)), str(dropout)]
            processes[name] = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            )
        for _ in range(times):
            for name, process in processes.items():
                taken[name].append(_step(process))
        for process in processes.values():
            process.communicate()
    return taken


def _step(process: subprocess.Popen[str]) -> Taken:
    if process.stdin is None or process.stdout is None or process.poll() is not None:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}; its message stands above.")
    process.stdin.write("step\n")
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}; its message stands above.")
    return Taken(**json.loads(line))


def measure_loader(shards: list[Path], *, kept_bytes: int) -> Pair:
    """One shard's samples after the other, from file to tensors, over several epochs.

    Args:
        shards: The data set.
        kept_bytes: What the trainer may keep in memory from one epoch to the next; the tutorial keeps nothing.
    """
    from benchmarks.seed_recipe import read_batches
    from trainer.data.shards import open_dataset
    from trainer.pretraining.batches import BatchReader

    dataset = open_dataset(shards[0].parent)
    reader = BatchReader(dataset, seed=0, vocab_size=VOCAB_SIZE, kept_bytes=kept_bytes)
    num_samples = dataset.num_samples // len(shards) // BATCH_SIZE * BATCH_SIZE
    order = iter(shards * LOADER_EPOCHS)
    position = 0

    def seed() -> None:
        for _ in read_batches(next(order), BATCH_SIZE):
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
    from trainer.data.shards import open_dataset

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
    from trainer.pretraining.batches import BatchReader

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


def _children_cpu_seconds() -> float:
    """CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _import(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)


def _rounded(seconds: float) -> float:
    return round(seconds, 4)
