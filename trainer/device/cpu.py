"""The CPU, for laptops and tests."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from trainer.device import Average, Precision, Steps, do_nothing
from trainer.device.cpu_kernels import CpuKernels, keep_freed_memory
from trainer.device.kernels import Kernels
from trainer.device.packing import Bucket, copy_each


class CpuDevice:
    """Trains on the CPU; gloo exchanges the gradients."""

    torch_device = torch.device("cpu")
    backend = "gloo"
    compiler: str | None = "inductor"
    compiles_by_default = False
    default_precision: Precision = "float32"
    vocabulary_multiple = 1
    attends_faster_without_mask = False
    kernels: Kernels = CpuKernels()
    fused_optimizer = True
    rounds_stochastically = False
    peak_tflops: float | None = None
    peak_source = "unknown"
    takes_peak_from_pod = False
    bucket_mib = 25  # torch's own default
    average: Average | None = None

    def __init__(self) -> None:
        keep_freed_memory()

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16")

    def start_queued_work(self) -> None:
        """Do nothing: the CPU works without a queue."""

    def take_step(self, optimizer: Steps) -> None:
        optimizer.step()

    def memory_bytes(self) -> int | None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts it in KiB

    def host_memory(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(num_elements, dtype=dtype)

    def copy_to_host(self, buckets: Sequence[Bucket]) -> Callable[[], None]:
        copy_each(buckets)
        return do_nothing
