"""The CPU, for laptops and tests."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from trainer.device import Precision


class CpuDevice:
    """Trains on the CPU; gradients travel over gloo."""

    torch_device = torch.device("cpu")
    backend = "gloo"
    inductor = True
    fused_optimizer = True

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16")

    def take_step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
