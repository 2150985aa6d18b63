"""One process's part in one training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.device import Device
from trainer.device.distributed import Gang
from trainer.loop.task import Task
from trainer.loop.training_config import TrainingConfig


@dataclass(frozen=True)
class Run:
    """What stays the same while training."""

    config: TrainingConfig
    task: Task[Any]
    device: Device
    gang: Gang
    output_dir: Path
    peak_tflops: float | None = None
    """Peak of each process's device; None if it is not known."""
    peak_source: str = "nobody"
    """Where that number is from."""
    leads_node: bool = True
    """Whether this process does what one of each node does for the others there."""
    graphs_only: bool = False
    """A tool records the graphs and the numbers mean nothing: no lines, no events, no checkpoints."""

    @property
    def global_batch_size(self) -> int:
        """Samples in a step."""
        plan = self.task.plan
        return plan.micro_batch_size * plan.micro_batches * self.gang.world_size

    @property
    def records(self) -> bool:
        """Whether this process writes for all."""
        return self.gang.rank == 0 and not self.graphs_only

    def say(self, sentence: str) -> None:
        """Tell the reader of the log, once for the gang."""
        if self.gang.rank == 0:
            print(sentence, flush=True)
