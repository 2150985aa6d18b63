"""Averages the gradients over the ranks of a gang, one bucket at a time."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.device import Average, Device
from trainer.device.distributed import Gang

_ALIKE_BUFFERS: Mapping[str, Any] = (
    {"forward_sync_buffers": False}
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else {"broadcast_buffers": False}
)
"""The models' buffers are constants. torch 2.13 deprecates the name of the option that torch 2.9 has."""


class Exchange(Protocol):
    """One way to average gradients over the ranks."""

    needs_warm_up: bool
    """Whether the first average that a process computes differs from all others in the last bit."""

    @property
    def replica(self) -> nn.Module:
        """The module that a micro-batch is passed to; the gradients are stored in the model itself."""

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Context for one micro-batch, which adds its gradients to those of the micro-batches before it."""

    def finish(self) -> None:
        """Complete the average over the ranks; called after the last micro-batch of a step."""


def exchange(model: nn.Module, gang: Gang, device: Device, *, bucket_mib: int | None) -> Exchange:
    """Choose the way to average that fits the device.

    Args:
        model: The model whose gradients are averaged.
        gang: The ranks to average over.
        device: The device that holds the model.
        bucket_mib: MiB of gradients in one collective; None takes the device's default.
    """
    if gang.world_size == 1:
        return Alone(model)
    size = device.bucket_mib if bucket_mib is None else bucket_mib
    if device.average is None:
        return DuringBackward(model, bucket_mib=size)
    return AfterBackward(model, device.average, gang.world_size, bucket_mib=size)


class Alone:
    """A single process, which does not exchange gradients."""

    needs_warm_up = False

    def __init__(self, model: nn.Module) -> None:
        self.replica = model

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        """Do nothing: the gradients of one process are their mean already."""


class DuringBackward:
    """DistributedDataParallel, which averages one bucket while the gradients of the next are computed."""

    needs_warm_up = True
    """DistributedDataParallel's reducer lays its buckets out again after the first backward pass, in the order of the
    gradients' arrival. With three ranks or more, the last bit of a sum depends on that layout."""

    def __init__(self, model: nn.Module, *, bucket_mib: int) -> None:
        self.replica = DistributedDataParallel(
            model, gradient_as_bucket_view=True, bucket_cap_mb=bucket_mib, **_ALIKE_BUFFERS
        )

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.replica.no_sync()

    def finish(self) -> None:
        """Do nothing: the last backward pass has averaged the sum."""


# Decision 33: hooks during the backward pass would trace other graphs in the first step, and on other ranks.
class AfterBackward:
    """One collective per bucket, queued before the optimizer's step; for devices that trace their work.

    DistributedDataParallel hooks into the backward pass and orders its buckets by the arrival of gradients. On a device
    that traces its work, both change the graph from step to step and from rank to rank, and ranks with different graphs
    wait for each other forever.
    """

    needs_warm_up = False

    def __init__(self, model: nn.Module, average: Average, world_size: int, *, bucket_mib: int) -> None:
        self.replica = model
        self._average = average
        self._world_size = world_size
        self._bucket_mib = bucket_mib

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        gradients = [parameter.grad for parameter in self.replica.parameters() if parameter.grad is not None]
        self._average(gradients[::-1], self._world_size, self._bucket_mib)
