"""The settings of the two small examples: what `python -m trainer.mlp` and `python -m trainer.classifier` accept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainer.arguments import aliases
from trainer.errors import ConfigInvalid


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig:
    """How to train on digits."""

    data_dir: Path | None = None
    """Folder with MNIST's four files, .gz or not; else TRAINFLOW_DATA_DIR; digits are drawn if neither is given."""
    output_dir: Path | None = None
    """Folder for checkpoints and TensorBoard events; else TRAINFLOW_RUN_DIR."""
    num_drawn: int = 8000
    """Digits to draw where there are no files; a tenth as many more are drawn to test with."""
    epochs: int = 4
    """Walks through the data set. The tutorial's number."""
    micro_batch_size: int = field(default=32, metadata=aliases("batch_size"))
    """Pictures that one process puts through the model at once; all processes' together make a step."""
    learning_rate: float = field(default=0.05, metadata=aliases("lr"))
    """Of gradient descent with momentum, the same in every step; fit for global batches of 32 to 1,024."""
    seed: int = 12349
    """Decides initial weights, the order of pictures and the pictures that are drawn."""
    steps_this_run: int = -1
    """Stop after so many steps, with a checkpoint to go on from; -1 goes on to the end."""
    log_steps: int = 20
    """Steps between two metrics lines; SIGTERM is noticed at these steps too."""
    checkpoint_steps: int = 200
    """Steps between two checkpoints; the last step of a run always leaves one."""
    keep_checkpoints: int = field(default=2, metadata=aliases("num_ckpts_to_keep"))
    """Newest checkpoints that stay."""
    device: Literal["auto", "cpu", "cuda", "xla", "neuron"] = "auto"
    """Where to train; auto takes a NeuronCore, then CUDA, then the CPU."""

    def __post_init__(self) -> None:
        positive = ("num_drawn", "epochs", "micro_batch_size", "log_steps", "checkpoint_steps", "keep_checkpoints")
        for name in (*positive, "learning_rate"):
            if getattr(self, name) <= 0:
                raise ConfigInvalid(f"--{name} is {getattr(self, name)}; it has to be above 0.")
        if self.seed < 0:
            raise ConfigInvalid(f"--seed is {self.seed}; it has to be at least 0.")
        if self.steps_this_run < 1 and self.steps_this_run != -1:
            raise ConfigInvalid(f"--steps_this_run is {self.steps_this_run}; it has to be at least 1, or -1 for all.")
