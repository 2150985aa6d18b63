"""NeuronCores of trn2 and trn3 through TorchNeuron, which makes them a device of torch like any other.

Written from its documentation (AWS Neuron 2.33, "TorchNeuron"); it was never run on such a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from trainer.device import Average, Precision, Steps, do_nothing
from trainer.device.kernels import Kernels, TorchKernels
from trainer.device.packing import Bucket, copy_packed


class NeuronDevice:
    """Trains on the NeuronCore with this process's number on its node."""

    backend = "neuron"
    compiler: str | None = "neuron"
    compiles_by_default = True
    default_precision: Precision = "float32"
    vocabulary_multiple = 1
    attends_faster_without_mask = False  # graphs would differ between batches
    kernels: Kernels = TorchKernels()
    fused_optimizer = False
    rounds_stochastically = True
    peak_tflops: float | None = None
    peak_source = "unknown"
    takes_peak_from_pod = True
    bucket_mib = 25  # torch's own default
    average: Average | None = None

    def __init__(self, local_rank: int) -> None:
        self.torch_device = torch.device("neuron", local_rank)
        torch.accelerator.set_device_index(local_rank)

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.torch_device)

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def autocast(self, precision: Precision) -> AbstractContextManager[object]:
        return torch.autocast("neuron", dtype=torch.bfloat16, enabled=precision == "bfloat16")

    def start_queued_work(self) -> None:
        """Do nothing: TorchNeuron has started already."""

    def take_step(self, optimizer: Steps) -> None:
        optimizer.step()

    def memory_bytes(self) -> int | None:
        return None

    def host_memory(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(num_elements, dtype=dtype)

    def copy_to_host(self, buckets: Sequence[Bucket]) -> Callable[[], None]:
        copy_packed(buckets, torch.Tensor.copy_)
        return do_nothing
