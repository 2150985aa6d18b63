"""Devices. Only this package distinguishes XLA, CUDA and the CPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import torch

from trainer.device import neuron_runtime
from trainer.device.kernels import Kernels
from trainer.device.packing import Bucket
from trainer.runtime.errors import ConfigInvalid

Name = Literal["auto", "cpu", "cuda", "xla", "neuron"]
Precision = Literal["float32", "tf32", "bfloat16", "pure_bfloat16"]

Average = Callable[[Sequence[torch.Tensor], int, int], None]
"""Replaces tensors of one dtype by their means over so many ranks, in collectives of so many MiB."""


class Steps(Protocol):
    """The part of an optimizer that a device uses."""

    def step(self) -> Any:
        """Change the weights by the gradients."""


class Device(Protocol):
    """One process's accelerator, or the CPU."""

    torch_device: torch.device
    """The torch device of this process's tensors."""
    backend: str
    """`torch.distributed` backend that sums gradients between devices of this kind."""
    compiler: str | None
    """Backend of torch.compile for this device; None for XLA devices, which trace and compile every step by
    themselves."""
    compiles_by_default: bool
    """Whether training is faster when that backend compiles the model."""
    default_precision: Precision
    """Precision of a training that asks for none."""
    vocabulary_multiple: int
    """Scores of the vocabulary are computed in a multiple of so many columns, and the extra ones are dropped: an odd
    number of them would be multiplied by slower kernels."""
    attends_faster_without_mask: bool
    """Whether its attention has a kernel that takes no mask: FlashAttention on GPUs."""
    kernels: Kernels
    """Functions for dropout and attention in a model that is not compiled."""
    fused_optimizer: bool
    """Whether torch has an optimizer step in one kernel for it."""
    rounds_stochastically: bool
    """Whether the device rounds stochastically by itself whenever it writes bfloat16."""
    peak_tflops: float | None
    """Dense bfloat16 peak, in 10^12 operations per second; None where only the pod's environment has it."""
    peak_source: str
    """Source of that number."""
    takes_peak_from_pod: bool
    """Whether the pod's TRAINFLOW_PEAK_TFLOPS applies to this device: it describes the node's accelerators, and never a
    CPU that replaces them."""
    bucket_mib: int
    """MiB of gradients in one collective; where possible, the backward pass continues meanwhile."""
    average: Average | None
    """Averages gradients with one collective per bucket; None where DistributedDataParallel does so in the backward
    pass."""

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor from host memory to this device; computations with it wait for the copy."""

    def seed(self, seed: int) -> None:
        """Make dropout on this device a function of this seed from here on."""

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        """Run matrix products in this precision inside the context."""

    def start_queued_work(self) -> None:
        """Execute the queued work on devices that only record operations; one micro-batch is one unit of work."""

    def take_step(self, optimizer: Steps) -> None:
        """Change the weights; the optimizer's step is one unit of work."""

    def memory_bytes(self) -> int | None:
        """Largest amount of the device's memory (on the CPU: of host memory) that this process has held; None if
        unknown."""

    def host_memory(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Allocate one-dimensional host memory for so many elements."""

    def copy_to_host(self, buckets: Sequence[Bucket]) -> Callable[[], None]:
        """Start a copy, in order with the device's other work, and return a function that waits for it."""


def choose(name: Name, *, local_rank: int, precision: Precision = "float32", model_type: str | None = None) -> Device:
    """Choose the device of this process.

    Args:
        name: Kind of device; auto takes the first that is there.
        local_rank: The number of this process on its node, and so of its accelerator.
        precision: The precision of the computation, which NeuronCores have to know before they start.
        model_type: The kind of model that the Neuron compiler optimises for; None for its default.

    Raises:
        ConfigInvalid: If the requested device does not exist.
    """
    available: dict[str, Callable[[], bool]] = {
        "xla": _has_xla,
        "neuron": _has_neuron,
        "cuda": torch.cuda.is_available,
        "cpu": lambda: True,
    }
    if name != "auto" and not available[name]():
        raise ConfigInvalid(f"--device is {name}, which this container does not have; give cpu or auto.")
    kind: str = next(kind for kind in available if name == kind or (name == "auto" and available[kind]()))
    if precision == "tf32" and kind != "cuda":
        raise ConfigInvalid(f"--precision is tf32, which the device {kind} does not have; give float32 or bfloat16.")
    if kind in ("xla", "neuron"):
        neuron_runtime.prepare(os.environ, pure_bfloat16=precision == "pure_bfloat16", model_type=model_type)
    if kind == "xla":
        from trainer.device.xla import XlaDevice

        return XlaDevice()
    if kind == "neuron":
        from trainer.device.neuron import NeuronDevice

        return NeuronDevice(local_rank)
    if kind == "cuda":
        from trainer.device.cuda import CudaDevice

        return CudaDevice(local_rank, precision=precision)
    from trainer.device.cpu import CpuDevice

    return CpuDevice()


def do_nothing() -> None:
    """Do nothing, for devices whose copies are complete when the call returns."""


def _has_xla() -> bool:
    return importlib.util.find_spec("torch_xla") is not None


def _has_neuron() -> bool:
    """TorchNeuron is loaded by torch itself and registers its device under this name."""
    return hasattr(torch, "neuron")
