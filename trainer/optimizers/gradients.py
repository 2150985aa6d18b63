"""How the gradients of a gang become one: their mean over the ranks, a bucket of them at a time."""

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

    settles: bool
    """Whether the first exchange of a process differs from all others in the last bit."""

    @property
    def replica(self) -> nn.Module:
        """What a micro-batch goes through; gradients end up in the model itself."""

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Around one micro-batch: its gradients are added to those before it."""

    def finish(self) -> None:
        """After the last micro-batch: the gradients are the mean over all ranks from here on."""


def exchange(model: nn.Module, gang: Gang, device: Device, *, bucket_mib: int | None) -> Exchange:
    """The way that fits the device.

    Args:
        model: Whose gradients they are.
        gang: The ranks.
        device: What the model lives on.
        bucket_mib: MiB of gradients that travel at once; the device's own number if None.
    """
    if gang.world_size == 1:
        return Alone(model)
    size = device.bucket_mib if bucket_mib is None else bucket_mib
    if device.average is None:
        return DuringBackward(model, bucket_mib=size)
    return AfterBackward(model, device.average, gang.world_size, bucket_mib=size)


class Alone:
    """A single process has nothing to exchange."""

    settles = False

    def __init__(self, model: nn.Module) -> None:
        self.replica = model

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        """The gradients are the mean already."""


class DuringBackward:
    """DistributedDataParallel: a bucket travels while the gradients of the next are computed."""

    settles = True
    """After its first exchange it lays its buckets out anew, in the order in which gradients arrived, and with three
    ranks or more the last bit of a sum depends on the layout."""

    def __init__(self, model: nn.Module, *, bucket_mib: int) -> None:
        self.replica = DistributedDataParallel(
            model, gradient_as_bucket_view=True, bucket_cap_mb=bucket_mib, **_ALIKE_BUFFERS
        )

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.replica.no_sync()

    def finish(self) -> None:
        """The last backward pass has averaged the sum."""


class AfterBackward:
    """One collective a bucket, noted down before the step; for devices that trace their work.

    DistributedDataParallel hooks into the backward pass and lays out buckets by the order of arrival: on a device that
    traces, both change the graph from step to step and from rank to rank, and ranks with different graphs wait for
    each other for ever.
    """

    settles = False

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
