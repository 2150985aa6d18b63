"""What a checkpoint holds and how training goes on from one as if it had never stopped.

Randomness needs no state of its own: initial weights, the order of samples and dropout are functions of the seed,
the step and the position in the stream, all of which are in the checkpoint. So is the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer import checkpoint_files
from trainer.checkpoint_files import CheckpointFile, Record
from trainer.config import PretrainConfig
from trainer.errors import CheckpointInvalid, StorageFailed

if TYPE_CHECKING:
    from trainer.bert import BertPretraining
    from trainer.optimizers import Optimizer

PURE_BFLOAT16 = "pure_bfloat16"
"""The precision whose weights are not float32."""


@dataclass(frozen=True)
class Progress:
    """How far the training has come."""

    step: int = 0
    samples_seen: int = 0
    first_loss: float = math.nan
    """Of the first logged step, in nats."""
    last_loss: float = math.nan
    """Of the last logged step, in nats."""

    def after_step(self, num_samples: int) -> Progress:
        """One step and its samples further."""
        return replace(self, step=self.step + 1, samples_seen=self.samples_seen + num_samples)

    def after_logging(self, loss: float) -> Progress:
        """With the loss of a step that was just logged."""
        return replace(self, first_loss=loss if math.isnan(self.first_loss) else self.first_loss, last_loss=loss)


def write(output_dir: Path, state: Mapping[str, Any], progress: Progress, config: PretrainConfig) -> CheckpointFile:
    """Write a state in host memory into one file.

    Args:
        output_dir: The run's folder.
        state: `model`, under Hugging Face's names, and `optimizer`.
        progress: How far the training had come.
        config: What it was asked to be.

    Raises:
        StorageFailed: If the folder cannot be written; earlier checkpoints stay as they are.
    """
    described = {**vars(progress), **_identity(config), "model": vars(config.model.shape)}
    try:
        return checkpoint_files.write(output_dir, lambda file: torch.save(dict(state), file), described)
    except OSError as error:
        raise StorageFailed(
            f"The checkpoint of step {progress.step} could not be written to {output_dir} ({error}); "
            "make room or give a folder that can be written. Earlier checkpoints are intact."
        ) from error


def newest_fitting(output_dir: Path, config: PretrainConfig, *, say: Callable[[str], None]) -> CheckpointFile | None:
    """The newest checkpoint that is whole and belongs to this training.

    Raises:
        CheckpointInvalid: If there are whole ones, and all belong to other trainings: the folder is the wrong one.
    """
    strangers: list[str] = []

    def misfit(record: Record) -> str | None:
        difference = difference_to(record, config)
        if difference is not None:
            strangers.append(f"The checkpoint of step {record.step} in {output_dir} {difference}")
        return difference and f"it {difference}"

    found = checkpoint_files.newest_verified(output_dir, say=say, misfit=misfit)
    if found is None and strangers:
        raise CheckpointInvalid(f"{strangers[0]}; give the same, or another --output_dir to start anew.")
    return found


def difference_to(record: Record, config: PretrainConfig) -> str | None:
    """Why this training must not go on from a checkpoint: another model, optimizer or random sequence."""
    written: dict[str, Any] = {**record.model, "precision": record.precision}
    asked: dict[str, Any] = {**vars(config.model.shape), "precision": config.precision}
    if PURE_BFLOAT16 not in (record.precision, config.precision):
        del written["precision"]  # float32 weights in either case
    if record.step > 0:  # before the first step there is neither
        written |= {"seed": record.seed, "optimizer": record.optimizer}
        asked |= {"seed": config.optimization.seed, "optimizer": config.optimization.optimizer}
    for name, value in written.items():
        if asked.get(name) != value:
            return f"was written with --{name} {value} and this run asks for {asked.get(name)}"
    return None


def load(found: CheckpointFile) -> dict[str, Any]:
    """What a verified checkpoint holds, in host memory."""
    content: dict[str, Any] = torch.load(found.path, map_location="cpu", weights_only=True)
    return content


def restore(found: CheckpointFile, model: BertPretraining, optimizer: Optimizer) -> Progress:
    """Put model and optimizer back into the state of a verified checkpoint; one of weights alone leaves the latter."""
    content = load(found)
    model.model.load_state_dict(content["model"])
    if content["optimizer"] is not None:
        optimizer.load_state_dict(content["optimizer"])
    record = found.record
    return Progress(record.step, record.samples_seen, record.first_loss, record.last_loss)


def _identity(config: PretrainConfig) -> dict[str, Any]:
    optimization = config.optimization
    return {"seed": optimization.seed, "optimizer": optimization.optimizer, "precision": config.precision}
