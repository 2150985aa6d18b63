"""One training step in several implementations, each in a process of its own: `python -m benchmarks.contestants NAME
…`.

* `tutorial`: the tutorial's step (`benchmarks.seed_recipe`).
* `good_eager`, `good_compiled`: what a good engineer achieves in an afternoon. Hugging Face's model with fused
  attention, the vocabulary's head on only the masked positions, one kernel for AdamW; the second with torch.compile.
* `ours`: the functions that the trainer's loop calls in a step, with the trainer's defaults.
* `gemm`: matrix products of the sizes of a layer, and nothing else.

All begin with the same weights and train on the same batches. The first three are given theirs; `ours` reads them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch

    from trainer.loop.task import TrainingProcess
    from trainer.pretraining.batches import MicroBatch

BATCH_SIZE = 16
MAX_SEQ_LENGTH = 128
VOCAB_SIZE = 30522
LEARNING_RATE = 1e-4
SEED = 12349

GEMM_SECONDS = 0.3
"""CPU seconds of products in one step of `gemm`."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int


@dataclass(frozen=True)
class Taken:
    """Measurements of one step."""

    loss: float
    cpu_seconds: float
    """CPU time of all threads, in seconds."""
    seconds: float
    waited: float = 0.0
    """Seconds that the step waited for data."""
    operations: float = 0.0
    """Multiplications and additions of the model, or of the products that were made."""


class Contestant(Protocol):
    """One implementation of the training step."""

    operations: float
    """Multiplications and additions of the last step."""

    @property
    def seconds_waited(self) -> float:
        """Time that its steps have waited for data."""

    def prepare(self) -> None:
        """Do the work that does not count as part of the step."""

    def step(self) -> float:
        """Take one step, and return its loss in nats, read from the device."""


class Ours:
    """The trainer's own step, from reading the samples on."""

    def __init__(self, process: TrainingProcess) -> None:
        from trainer.checkpoints.checkpoint import Progress
        from trainer.loop.learner import build_learner

        self._process = process
        self.operations = step_operations(process)
        self._batches = process.task.open_batches(process.gang)
        self.learner = build_learner(process, process.gang)
        self._progress = Progress()

    @property
    def seconds_waited(self) -> float:
        """Time that the steps waited for data."""
        return self._batches.seconds_waited

    def prepare(self) -> None:
        """Do nothing: reading is part of the step."""

    def step(self) -> float:
        from trainer.loop.learner import take_step
        from trainer.loop.training import accumulate_gradients

        losses = accumulate_gradients(self._process, self.learner, self._batches, self._progress)
        take_step(self._process, self.learner, LEARNING_RATE)
        self._progress = self._progress.after_step(BATCH_SIZE)
        return float(losses.sum().item())


class Given:
    """An implementation that is given its batches, which are those that the trainer would read."""

    seconds_waited = 0.0

    def __init__(self, process: TrainingProcess, step: Callable[[MicroBatch], float]) -> None:
        self.operations = step_operations(process)
        self._batches: Any = process.task.open_batches(process.gang)
        self._step = step
        self._first = 0

    def prepare(self) -> None:
        self._batch = self._batches.micro_batch(np.arange(self._first, self._first + BATCH_SIZE))
        self._first += BATCH_SIZE

    def step(self) -> float:
        return self._step(self._batch)


class Gemm:
    """Products of a batch's hidden states with the feed-forward layer's weights, in both directions."""

    seconds_waited = 0.0

    def __init__(self, sizes: Sizes) -> None:
        import torch

        rows, hidden, inner = BATCH_SIZE * MAX_SEQ_LENGTH, sizes.hidden_size, sizes.intermediate_size
        self._states, self._inner = torch.randn(rows, hidden), torch.empty(rows, inner)
        self._up, self._down = torch.randn(hidden, inner), torch.randn(inner, hidden)
        self._operations = 2 * 2 * rows * hidden * inner
        self.operations = 0.0

    def prepare(self) -> None:
        """Do nothing."""

    def step(self) -> float:
        import torch

        self.operations, began = 0.0, time.process_time()
        out = torch.empty_like(self._states)
        while time.process_time() - began < GEMM_SECONDS:
            torch.mm(self._states, self._up, out=self._inner)
            torch.mm(self._inner, self._down, out=out)
            self.operations += self._operations
        return 0.0


def good_training(sizes: Sizes, weights: Mapping[str, Any], *, dropout: float, compiled: bool) -> Any:
    """A good engineer's step, as a function of a batch."""
    import torch
    from torch import nn
    from torch.nn import functional
    from transformers import BertForPreTraining

    from benchmarks.seed_recipe import MAX_GRAD_NORM, TutorialsAdamW

    model = BertForPreTraining(hugging_face_config(sizes, dropout=dropout)).train()
    model.load_state_dict(weights)
    optimizer = TutorialsAdamW(model, learning_rate=LEARNING_RATE, fused=True)

    def batch_loss(batch: MicroBatch) -> torch.Tensor:
        hidden, pooled = model.bert(
            batch.token_ids_BS, attention_mask=batch.attended_BS, token_type_ids=batch.segment_ids_BS
        )[:2]
        index = batch.masked_positions_BM.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        scores = model.cls.predictions(hidden.gather(1, index)).flatten(0, 1)
        masked = functional.cross_entropy(scores, batch.masked_labels_BM.flatten())
        return masked + functional.cross_entropy(model.cls.seq_relationship(pooled), batch.is_random_next_B)

    forward = torch.compile(batch_loss) if compiled else batch_loss

    def step(batch: MicroBatch) -> float:
        loss = forward(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.item())

    return step


def hugging_face_config(sizes: Sizes, *, dropout: float) -> Any:
    """The model of these sizes as Hugging Face describes it."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **asdict(sizes),
    )


def make_process(data: Path, folder: Path, sizes: Sizes, *, dropout: float) -> TrainingProcess:
    """The trainer's process that trains on these shards."""
    from trainer import device
    from trainer.data.shards import open_dataset
    from trainer.device.distributed import Gang
    from trainer.loop.task import TrainingProcess
    from trainer.optimizers.optimization_config import OptimizationConfig
    from trainer.pretraining.config import ModelConfig, PretrainConfig
    from trainer.pretraining.task import Pretraining

    config = PretrainConfig(
        device="cpu",
        model=ModelConfig(**asdict(sizes), vocab_size=VOCAB_SIZE, dropout=dropout),
        optimization=OptimizationConfig(micro_batch_size=BATCH_SIZE, gradient_accumulation_steps=1, seed=SEED),
    )
    task = Pretraining(config, open_dataset(data), "float32", micro_batches=1, world_size=1)
    return TrainingProcess(
        config, task, device.choose("cpu", local_rank=0), Gang(rank=0, world_size=1, control=None), folder
    )


def contestant(name: str, process: TrainingProcess, sizes: Sizes, *, dropout: float) -> Contestant:
    """Make the contestant of this name, with the weights that the trainer draws from the seed."""
    if name == "gemm":
        return Gemm(sizes)
    ours = Ours(process)
    if name == "ours":
        return ours
    weights = {name: tensor.clone() for name, tensor in ours.learner.model.state_dict().items()}
    if name == "tutorial":
        from benchmarks.seed_recipe import SeedTraining

        config = hugging_face_config(sizes, dropout=dropout)
        return Given(process, SeedTraining(config, weights, learning_rate=LEARNING_RATE).step)
    return Given(process, good_training(sizes, weights, dropout=dropout, compiled=name == "good_compiled"))


def step_operations(process: TrainingProcess) -> float:
    """Operations of the model in one step."""
    return BATCH_SIZE * float(process.task.samples.operations or 0)


def main(argv: list[str]) -> None:
    """Take a step for every line on stdin, and describe it in a line on stdout.

    Args:
        argv: Name, folder of the shards, the model's sizes as JSON, dropout.
    """
    name, data, sizes_json, dropout_text = argv
    sizes, dropout = Sizes(**json.loads(sizes_json)), float(dropout_text)
    with redirect_stdout(sys.stderr):
        process = make_process(Path(data), Path(data) / "unused", sizes, dropout=dropout)
        own = contestant(name, process, sizes, dropout=dropout)
    for _ in sys.stdin:
        own.prepare()
        waited, began, cpu_began = own.seconds_waited, time.perf_counter(), time.process_time()
        loss = own.step()
        taken = Taken(
            loss,
            cpu_seconds=time.process_time() - cpu_began,
            seconds=time.perf_counter() - began,
            waited=own.seconds_waited - waited,
            operations=own.operations,
        )
        print(json.dumps(asdict(taken)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
