"""Where tensors live. Only this package tells XLA from CUDA from the CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, Protocol

import torch

from trainer.errors import ConfigInvalid

Precision = Literal["float32", "bfloat16"]


class Device(Protocol):
    """One process's accelerator, or the CPU."""

    torch_device: torch.device
    """Where this process's tensors live."""
    backend: str
    """`torch.distributed` backend that sums gradients between such devices."""
    inductor: bool
    """Whether TorchInductor compiles for it; XLA devices bring a compiler of their own."""
    fused_optimizer: bool
    """Whether torch has an optimizer step in one kernel for it."""

    def seed(self, seed: int) -> None:
        """Make dropout on this device a function of the seed from here on."""

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        """Run matrix products in this precision inside the context."""

    def take_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Change the weights and start whatever work the device has queued up."""


def choose(name: Literal["auto", "cpu", "cuda", "xla"], *, local_rank: int) -> Device:
    """The device of this process.

    Args:
        name: Kind of device; auto takes XLA, then CUDA, then the CPU.
        local_rank: This process among those of its node; numbers the node's GPUs.

    Raises:
        ConfigInvalid: If the device asked for is not there.
    """
    available: dict[str, Callable[[], bool]] = {"xla": _has_xla, "cuda": torch.cuda.is_available, "cpu": lambda: True}
    if name != "auto" and not available[name]():
        raise ConfigInvalid(f"--device is {name}, which this container does not have; give cpu or auto.")
    kind = next(kind for kind in available if name == kind or (name == "auto" and available[kind]()))
    if kind == "xla":
        from trainer.device.xla import XlaDevice

        return XlaDevice()
    if kind == "cuda":
        from trainer.device.cuda import CudaDevice

        return CudaDevice(local_rank)
    from trainer.device.cpu import CpuDevice

    return CpuDevice()


def _has_xla() -> bool:
    return importlib.util.find_spec("torch_xla") is not None
