"""NeuronCores and other XLA devices, through PyTorch/XLA."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
import torch_xla
import torch_xla.core.xla_model as xla_model
import torch_xla.distributed.xla_backend  # registers the process group backend "xla"

from trainer.device import Precision


class XlaDevice:
    """Trains on this process's XLA device; PyTorch/XLA traces and compiles the step by itself."""

    backend = "xla"
    inductor = False
    fused_optimizer = False

    def __init__(self) -> None:
        self.torch_device: torch.device = torch_xla.device()

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)
        xla_model.set_rng_state(seed)

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        return torch.autocast("xla", dtype=torch.bfloat16, enabled=precision == "bfloat16")

    def take_step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        torch_xla.sync()
