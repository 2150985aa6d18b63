"""NVIDIA GPUs, one a process."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from trainer.device import Precision
from trainer.errors import ConfigInvalid


class CudaDevice:
    """Trains on the GPU that has this process's number on its node; gradients travel over NCCL."""

    backend = "nccl"
    inductor = True
    fused_optimizer = True

    def __init__(self, local_rank: int) -> None:
        if local_rank >= torch.cuda.device_count():
            raise ConfigInvalid(
                f"--nproc_per_node asks for at least {local_rank + 1} processes and the node has "
                f"{torch.cuda.device_count()} GPUs; start one process a GPU."
            )
        self.torch_device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.torch_device)

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        return torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bfloat16")

    def take_step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
