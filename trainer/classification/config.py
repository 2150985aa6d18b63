"""The settings of the two small examples: what `python -m trainer.mlp` and `python -m trainer.classifier` accept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainer.loop.training_config import TrainingConfig
from trainer.runtime.arguments import aliases
from trainer.runtime.errors import ConfigInvalid


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(TrainingConfig):
    """Settings of a training on digits."""

    data_dir: Path | None = None
    """Folder with MNIST's four files, .gz or not; else TRAINFLOW_DATA_DIR; if neither is given, digits are drawn."""
    num_drawn: int = 8000
    """Number of digits to draw without files; a tenth of that number is drawn in addition for the test."""
    epochs: int = 4
    """Passes through the data set. The tutorial's number."""
    micro_batch_size: int = field(default=32, metadata=aliases("batch_size"))
    """Pictures in one forward pass of one process; those of all processes make a step."""
    learning_rate: float = field(default=0.05, metadata=aliases("lr"))
    """Learning rate of gradient descent with momentum, the same in every step; fit for global batches of 32 to
    1,024."""
    seed: int = 12349
    """Determines the initial weights, the order of pictures, and the pictures that are drawn."""
    log_steps: int = 20
    """Steps between two metrics lines; SIGTERM is noticed at these steps too."""
    checkpoint_steps: int = 200
    """Steps between two checkpoints; the last step of a run always writes one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_drawn", "epochs", "micro_batch_size", "learning_rate"):
            if getattr(self, name) <= 0:
                raise ConfigInvalid(f"--{name} is {getattr(self, name)}; it has to be above 0.")
        if self.seed < 0:
            raise ConfigInvalid(f"--seed is {self.seed}; it has to be at least 0.")
