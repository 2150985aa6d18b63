"""One process's part in one training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer import fingerprint
from trainer.config import PretrainConfig
from trainer.device import Device
from trainer.distributed import Gang
from trainer.fingerprint import Fingerprint
from trainer.shards import ShardedDataset


@dataclass(frozen=True)
class Run:
    """What stays the same while training."""

    config: PretrainConfig
    dataset: ShardedDataset
    device: Device
    gang: Gang
    output_dir: Path
    micro_batches: int
    """Of each process in a step; `trainer.scaling` says how many."""
    peak_tflops: float | None = None
    """Of each process's device; None if nobody knows."""
    peak_source: str = "nobody"
    """Who knows it."""
    leads_node: bool = True
    """Whether this process does what one of each node does for the others there."""
    graphs_only: bool = False
    """A tool records the graphs and the numbers mean nothing: no lines, no events, no checkpoints."""

    @property
    def global_batch_size(self) -> int:
        """Sequences in a step."""
        return self.config.optimization.micro_batch_size * self.micro_batches * self.gang.world_size

    @property
    def fingerprint(self) -> Fingerprint:
        """What a checkpoint has to be of that this training goes on from."""
        return fingerprint.of_pretraining(self.config, self.dataset, global_batch_size=self.global_batch_size)

    @property
    def records(self) -> bool:
        """Whether this process writes for all."""
        return self.gang.rank == 0 and not self.graphs_only

    def say(self, sentence: str) -> None:
        """Tell the reader of the log, once for the gang."""
        if self.gang.rank == 0:
            print(sentence, flush=True)
