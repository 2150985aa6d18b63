"""One process of a training: its task, its device, its place in the gang, and where it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.device import Device
from trainer.device.distributed import Gang
from trainer.loop.task import Task
from trainer.loop.training_config import TrainingConfig


@dataclass(frozen=True)
class TrainingProcess:
    """Facts that one process of the gang knows before the first step; they do not change while training."""

    config: TrainingConfig
    task: Task[Any]
    device: Device
    gang: Gang
    output_dir: Path
    peak_tflops: float | None = None
    """Peak of each process's device; None if it is not known."""
    peak_source: str = "unknown"
    """Source of that number, for readers."""
    leads_node: bool = True
    """Whether this process does the work that one process does for all on its node."""
    graphs_only: bool = False
    """Whether a tool only records the graphs: the numbers mean nothing, so no line, event or checkpoint is written."""
    earlier_dirs: tuple[Path, ...] = ()
    """The same folder of the runs that this one continues, the newest first. They are read and not written."""

    @property
    def global_batch_size(self) -> int:
        """Samples in a step."""
        plan = self.task.plan
        return plan.micro_batch_size * plan.micro_batches * self.gang.world_size

    @property
    def records(self) -> bool:
        """Whether this process writes the log, the events and the checkpoints for all."""
        return self.gang.rank == 0 and not self.graphs_only

    def say(self, sentence: str) -> None:
        """Print a sentence in the log, once for the gang."""
        if self.gang.rank == 0:
            print(sentence, flush=True)
