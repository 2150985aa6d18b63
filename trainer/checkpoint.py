"""What a checkpoint holds and how training goes on from one as if it had never stopped.

Randomness needs no state of its own: initial weights, the order of samples and dropout are functions of the seed,
the step and the position in the stream, all of which are in the checkpoint. So is the learning rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import torch

from trainer import checkpoint_files
from trainer.checkpoint_files import CheckpointFile
from trainer.config import ModelConfig
from trainer.errors import CheckpointInvalid, StorageFailed

if TYPE_CHECKING:
    from trainer.bert import BertPretraining


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


def save(
    output_dir: Path,
    progress: Progress,
    model: BertPretraining,
    optimizer: torch.optim.Optimizer,
    *,
    config: ModelConfig,
    seed: int,
) -> CheckpointFile:
    """Write model, optimizer and progress into one file.

    Raises:
        StorageFailed: If the folder cannot be written.
    """

    def write(file: BinaryIO) -> None:
        torch.save({"model": model.model.state_dict(), "optimizer": optimizer.state_dict()}, file)

    described = {**vars(progress), "seed": seed, "model": vars(config.shape)}
    try:
        return checkpoint_files.write(output_dir, write, described)
    except OSError as error:
        raise StorageFailed(
            f"The checkpoint of step {progress.step} could not be written to {output_dir} ({error}); "
            "make room or give a folder that can be written."
        ) from error


def restore(
    found: CheckpointFile,
    model: BertPretraining,
    optimizer: torch.optim.Optimizer,
    *,
    config: ModelConfig,
    seed: int,
) -> Progress:
    """Put model and optimizer back into the state of a verified checkpoint.

    Raises:
        CheckpointInvalid: If it belongs to another model or seed.
    """
    require_fit(found, config=config, seed=seed)
    content = torch.load(found.path, map_location="cpu", weights_only=True)
    model.model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    record = found.record
    return Progress(record.step, record.samples_seen, record.first_loss, record.last_loss)


def require_fit(found: CheckpointFile, *, config: ModelConfig, seed: int) -> None:
    """A checkpoint of another model or another random sequence must not be continued unnoticed."""
    asked = {**vars(config.shape), "seed": seed}
    written = {**found.record.model, "seed": found.record.seed}
    for name, value in asked.items():
        if written.get(name) != value:
            raise CheckpointInvalid(
                f"The checkpoint {found.path.name} was written with --{name} {written.get(name)} and this run asks for "
                f"{value}; give the same, or another --output_dir to start anew."
            )
