"""Where tensors live. Only this package tells XLA from CUDA from the CPU."""

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
"""Replaces tensors of one dtype by their means over so many ranks, so many MiB of them at once."""


class Steps(Protocol):
    """An optimizer, as far as a device is concerned."""

    def step(self) -> Any:
        """Change the weights by the gradients."""


class Device(Protocol):
    """One process's accelerator, or the CPU."""

    torch_device: torch.device
    """Where this process's tensors live."""
    backend: str
    """`torch.distributed` backend that sums gradients between such devices."""
    compiler: str | None
    """torch.compile's backend for it; None for XLA devices, which trace and compile every step by themselves."""
    compiles_by_default: bool
    """Whether training is faster when that backend compiles the model."""
    default_precision: Precision
    """What a training computes in that was not told."""
    vocabulary_multiple: int
    """Scores of the vocabulary are computed in a multiple of so many columns, the further ones thrown away: an odd
    number of them would be multiplied by slower kernels."""
    kernels: Kernels
    """How it computes dropout and attention in a model that is not compiled."""
    fused_optimizer: bool
    """Whether torch has an optimizer step in one kernel for it."""
    rounds_stochastically: bool
    """Whether it does so by itself whenever it writes bfloat16."""
    peak_tflops: float | None
    """Dense bfloat16 peak, in 10^12 operations a second; None where only the pod's environment can say."""
    peak_source: str
    """Where that number is from."""
    takes_peak_from_pod: bool
    """Whether the pod's TRAINFLOW_PEAK_TFLOPS is of this device: it is of the node's accelerators, and never of a CPU
    that computes in their place."""
    bucket_mib: int
    """MiB of gradients that travel between the ranks at once, while the backward pass goes on where it can."""
    average: Average | None
    """One collective a bucket; None where DistributedDataParallel does it during the backward pass."""

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on this device, out of host memory; what is computed with it there waits for the copy."""

    def seed(self, seed: int) -> None:
        """Make dropout on this device a function of the seed from here on."""

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        """Run matrix products in this precision inside the context."""

    def start_queued_work(self) -> None:
        """For devices that only note down what they are told to do: do it. One micro-batch is one piece of work."""

    def take_step(self, optimizer: Steps) -> None:
        """Change the weights; the step is a piece of work of its own."""

    def memory_bytes(self) -> int | None:
        """What this process holds at its most of the device's memory, on the CPU of the host's; None if unknown."""

    def host_memory(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Room in host memory for so much, in one dimension."""

    def copy_to_host(self, buckets: Sequence[Bucket]) -> Callable[[], None]:
        """Start copying, in order with the device's other work; what is returned waits until it is done."""


def choose(name: Name, *, local_rank: int, precision: Precision = "float32", model_type: str | None = None) -> Device:
    """The device of this process.

    Args:
        name: Kind of device; auto takes the first that is there.
        local_rank: This process among those of its node; numbers the node's accelerators.
        precision: What will be computed in; NeuronCores are told before they start.
        model_type: What the Neuron compiler shall optimise for; its own default if None.

    Raises:
        ConfigInvalid: If the device asked for is not there.
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


def nothing_to_wait_for() -> None:
    """For devices whose copies are complete when the call returns."""


def _has_xla() -> bool:
    return importlib.util.find_spec("torch_xla") is not None


def _has_neuron() -> bool:
    """TorchNeuron is loaded by torch itself and registers its device under this name."""
    return hasattr(torch, "neuron")
