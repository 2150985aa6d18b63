"""The training against a plain re-implementation of the tutorial's loop: same weights, same batches, no code in common.

On this side are Hugging Face's model with labels at every position, the optimizer of the tutorial written out, and
Hugging Face's schedule, stepped where the tutorial steps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertForPreTraining
from transformers.optimization import get_linear_schedule_with_warmup

from tests.integration.trainer.forked_training import SHAPE
from tests.unit.trainer.conftest import make_rows, write_shard
from trainer import device
from trainer.checkpoints.checkpoint import Progress
from trainer.data.shards import open_dataset
from trainer.device.distributed import Gang
from trainer.loop import learner, training
from trainer.loop.progress_log import ProgressLog
from trainer.loop.task import TrainingProcess
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.pretraining.batches import MicroBatch
from trainer.pretraining.config import ModelConfig, PretrainConfig
from trainer.pretraining.task import Pretraining

STEPS, WARMUP_STEPS, RATE, MICRO_BATCHES = 200, 50, 4e-4, 2


class TutorialsAdamW(torch.optim.Optimizer):
    """Decoupled decay behind the update, ε beside the root of the uncorrected second moment."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, {"lr": RATE})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for weights in group["params"]:
                state = self.state[weights]
                state["t"] = t = state.get("t", 0) + 1
                m = state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * weights.grad
                v = state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * weights.grad**2
                size = group["lr"] * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
                weights -= size * m / (v.sqrt() + 1e-6)
                weights -= group["lr"] * group["weight_decay"] * weights


def labels_of(batch: MicroBatch) -> torch.Tensor:
    """The original token at every masked position of a sequence, -100 elsewhere, as the tutorial's data set has it."""
    labels = torch.full_like(batch.token_ids_BS, -100)
    for row, positions in enumerate(batch.masked_positions_BM):
        for place, position in enumerate(positions):
            if batch.masked_labels_BM[row, place] != -100:
                labels[row, position] = batch.masked_labels_BM[row, place]
    return labels


def tutorials_losses(weights: dict[str, torch.Tensor], batches: Iterator[list[MicroBatch]]) -> list[float]:
    config = BertConfig(**SHAPE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForPreTraining(config).train()
    model.load_state_dict(weights)
    parameters = list(model.named_parameters())
    no_decay = ("bias", "LayerNorm")
    groups = [
        {"params": [p for n, p in parameters if not any(part in n for part in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in parameters if any(part in n for part in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = TutorialsAdamW(groups)
    schedule = get_linear_schedule_with_warmup(optimizer, WARMUP_STEPS, STEPS)
    losses = []
    for micro_batches in batches:
        running = 0.0
        for batch in micro_batches:
            loss = model(
                input_ids=batch.token_ids_BS,
                attention_mask=batch.attended_BS,
                token_type_ids=batch.segment_ids_BS,
                labels=labels_of(batch),
                next_sentence_label=batch.is_random_next_B,
            ).loss / len(micro_batches)
            loss.backward()
            running += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(running)
    return losses


def test_two_hundred_steps_have_the_tutorials_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shard(tmp_path, 0, make_rows(400))
    config = PretrainConfig(
        device="cpu",
        compile=False,
        model=ModelConfig(**SHAPE, dropout=0.0),  # type: ignore[arg-type]
        optimization=OptimizationConfig(
            micro_batch_size=4,
            gradient_accumulation_steps=MICRO_BATCHES,
            max_steps=STEPS,
            warmup_steps=WARMUP_STEPS,
            learning_rate=RATE,
        ),
        checkpoint_steps=STEPS,
    )
    gang = Gang(rank=0, world_size=1, control=None)
    task = Pretraining(config, open_dataset(tmp_path), "float32", micro_batches=MICRO_BATCHES, world_size=1)
    process = TrainingProcess(config, task, device.choose("cpu", local_rank=0), gang, tmp_path / "run")
    initial = {n: w.clone() for n, w in learner.build_learner(process, gang).model.state_dict().items()}
    ours: list[float] = []
    write = ProgressLog.write

    def keeping(*arguments: Any, **options: Any) -> Any:
        progress, decision = write(*arguments, **options)
        ours.append(progress.last_loss)
        return progress, decision

    monkeypatch.setattr(ProgressLog, "write", keeping)
    training.train(process)

    theirs = tutorials_losses(initial, batches_of(process))
    assert len(ours) == len(theirs) == STEPS
    difference = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
    print(f"largest difference of {STEPS} losses: {difference:.2e}; {theirs[0]:.4f} to {theirs[-1]:.4f}")
    assert difference <= 1e-5
    assert theirs[-1] < theirs[0] - 0.1


def batches_of(process: TrainingProcess) -> Iterator[list[MicroBatch]]:
    """The micro-batches of every step."""
    reader = process.task.open_batches(process.gang)
    for step in range(STEPS):
        progress = Progress(step=step, samples_seen=step * process.global_batch_size)
        positions = [training.next_positions(process, progress, index=index)[1] for index in range(MICRO_BATCHES)]
        yield [reader.micro_batch(own) for own in positions]
