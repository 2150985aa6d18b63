"""NVIDIA GPUs, one a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from trainer.device import Average, Precision, Steps
from trainer.device.kernels import Kernels, TorchKernels
from trainer.device.packing import Bucket, copy_packed
from trainer.runtime.errors import ConfigInvalid

DENSE_BFLOAT16_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0}
"""NVIDIA's data sheets, without sparsity; of the H100 that of the SXM board."""


class CudaDevice:
    """Trains on the GPU with this process's number on its node; NCCL exchanges the gradients."""

    backend = "nccl"
    compiler: str | None = "inductor"
    compiles_by_default = True
    default_precision: Precision = "bfloat16"
    vocabulary_multiple = 64
    attends_faster_without_mask = True
    kernels: Kernels = TorchKernels()
    fused_optimizer = True
    rounds_stochastically = False
    takes_peak_from_pod = True
    bucket_mib = 25  # torch's own default
    average: Average | None = None

    def __init__(self, local_rank: int, *, precision: Precision) -> None:
        if local_rank >= torch.cuda.device_count():
            raise ConfigInvalid(
                f"--nproc_per_node asks for at least {local_rank + 1} processes and the node has "
                f"{torch.cuda.device_count()} GPUs; start one process a GPU."
            )
        self.torch_device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.torch_device)
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        name = torch.cuda.get_device_name(self.torch_device)
        self.peak_tflops = next((peak for model, peak in DENSE_BFLOAT16_TFLOPS.items() if model in name), None)
        self.peak_source = f"NVIDIA's data sheet of the {name}"

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory().to(self.torch_device, non_blocking=True)  # copied while the GPU computes

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        return torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bfloat16")

    def start_queued_work(self) -> None:
        """Do nothing: the GPU has started already."""

    def take_step(self, optimizer: Steps) -> None:
        optimizer.step()

    def memory_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self.torch_device)

    def host_memory(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(num_elements, dtype=dtype, pin_memory=True)

    def copy_to_host(self, buckets: Sequence[Bucket]) -> Callable[[], None]:
        copy_packed(buckets, lambda host, packed: host.copy_(packed, non_blocking=True))
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return copied.synchronize
