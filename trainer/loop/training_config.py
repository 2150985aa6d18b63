"""The settings that every training has, whatever it trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainer.runtime.arguments import aliases, require


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings that every training has, whatever it trains."""

    data_dir: Path | None = None
    """Folder with the data set; else TRAINFLOW_DATA_DIR."""
    output_dir: Path | None = None
    """Folder for checkpoints and TensorBoard events; else TRAINFLOW_RUN_DIR."""
    allow_changes: str | None = None
    """Settings, separated by commas, that may differ from the run whose checkpoint this run resumes:
    `learning_rate,max_steps`, `dataset`. A checkpoint that differs in others is refused."""
    steps_this_run: int = -1
    """Stop after so many steps, with a checkpoint to resume from; -1 continues to the last step."""
    log_steps: int = 1
    """Steps between two metrics lines; SIGTERM is noticed at these steps too."""
    print_grad_norm: bool = False
    """End the metrics line with the gradients' 2-norm before clipping, as the tutorial's script does when asked to;
    the report behind the line always has it."""
    checkpoint_steps: int = 100
    """Steps between two checkpoints; the last step of a run always writes one."""
    checkpoint_minutes: float = 0.0
    """Minutes since the last checkpoint before the next logged step writes one, too; 0 counts steps only."""
    keep_checkpoints: int = field(default=2, metadata=aliases("num_ckpts_to_keep"))
    """Number of the newest checkpoints to keep; two, so that one is complete while the next is being written. -1 keeps
    all."""
    device: Literal["auto", "cpu", "cuda", "xla", "neuron"] = "auto"
    """The device to train on: xla is trn1's NeuronCores through PyTorch/XLA, neuron those of trn2 and trn3 through
    TorchNeuron;
    auto takes what is installed in the order xla, neuron, cuda, cpu."""
    compile: bool | None = None
    """Compile the model with the device's torch.compile backend, where it has one. By default on GPUs and not on the
    CPU, where it makes a step slower."""
    bucket_mib: int | None = None
    """MiB of gradients in one collective; if left out, the default of the device: 512 on trn1,
    the BUCKET_CAP_MB of the tutorial, and 25 elsewhere."""

    def __post_init__(self) -> None:
        for name in ("log_steps", "checkpoint_steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("steps_this_run", "keep_checkpoints"):
            value = getattr(self, name)
            require(value >= 1 or value == -1, name, value, "at least 1, or -1 for all")
        require(self.checkpoint_minutes >= 0, "checkpoint_minutes", self.checkpoint_minutes, "at least 0")
        if self.bucket_mib is not None:
            require(self.bucket_mib >= 1, "bucket_mib", self.bucket_mib, "at least 1")
