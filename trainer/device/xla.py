"""NeuronCores and other XLA devices, through PyTorch/XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
import torch_xla
import torch_xla.core.xla_model as xla_model
import torch_xla.distributed.xla_backend  # registers the process group backend "xla"
import torch_xla.runtime

from trainer.device import Average, Precision, Steps, do_nothing
from trainer.device.kernels import Kernels, TorchKernels
from trainer.device.packing import Bucket, copy_each


class XlaDevice:
    """Trains on this process's XLA device; PyTorch/XLA traces and compiles the step by itself."""

    backend = "xla"
    compiler: str | None = None
    compiles_by_default = False
    default_precision: Precision = "float32"
    vocabulary_multiple = 1
    attends_faster_without_mask = False  # graphs would differ between batches
    kernels: Kernels = TorchKernels()
    fused_optimizer = False
    peak_tflops: float | None = None
    peak_source = "unknown"
    takes_peak_from_pod = True
    bucket_mib = 512  # BUCKET_CAP_MB of the tutorial's launch scripts

    def __init__(self) -> None:
        self.rounds_stochastically = torch_xla.runtime.device_type() == "NEURON"
        self.torch_device: torch.device = torch_xla.device()
        self.average: Average | None = _average

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.torch_device)

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)
        xla_model.set_rng_state(seed)

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        return torch.autocast("xla", dtype=torch.bfloat16, enabled=precision == "bfloat16")

    def start_queued_work(self) -> None:
        torch_xla.sync()

    def take_step(self, optimizer: Steps) -> None:
        optimizer.step()
        torch_xla.sync()

    def memory_bytes(self) -> int | None:
        return None

    def host_memory(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(num_elements, dtype=dtype)

    def copy_to_host(self, buckets: Sequence[Bucket]) -> Callable[[], None]:
        torch_xla.sync()  # finished tensors, not a graph that ends in each of them
        for bucket in buckets:
            if bucket.host.device == bucket.sources[0].device:
                copy_each([bucket])
                continue
            # Copied in one request, but not concatenated: concatenation would be a graph that no other rank has.
            copied = torch_xla._XLAC._xla_get_cpu_tensors(list(bucket.sources))
            for (_, place), copy in zip(bucket.places(), copied, strict=True):
                place.copy_(copy)
        return do_nothing


def _average(tensors: Sequence[torch.Tensor], world_size: int, bucket_mib: int) -> None:
    xla_model.all_reduce_bucketized_gradients(
        list(tensors), scale=1 / world_size, groups=None, pin_layout=True, bucket_cap_mb=bucket_mib
    )
