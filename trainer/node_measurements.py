"""The measurements of one process in the test of a gang's nodes: its device's memory, and the exchange with others.

No process groups are made beside the one of all processes. Pairs of nodes exchange data point to point in that group.
The names of further groups depend on how many a process has made before; the nodes of a ring of odd length have made
different numbers of them, and would wait for each other for ever.

Where gradients are averaged by one graph of all processes (PyTorch/XLA), the exchange is that graph: it shows that the
collective works, and does not distinguish the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial

import torch
import torch.distributed as dist

from trainer.device import Device, choose
from trainer.device.distributed import join
from trainer.node_figures import Measured, better, partners
from trainer.node_meeting import Place
from trainer.runtime.environment import Environment

ELEMENTS = 8 << 20
"""Numbers of 4 bytes that are copied at once: 32 MiB, more than fits in caches."""

EXCHANGED_ELEMENTS = ELEMENTS // 8
"""Numbers that are exchanged at once."""

REPETITIONS = 5
"""The fastest one counts: other programs may have disturbed the rest."""

COPYING_SECONDS = 0.5
"""Minimum duration of copying memory. Five copies take a few milliseconds, so that one disturbance may affect all of
them."""


class Measurements:
    """The measurements of this process. Each has a preparation that is not measured: start of the device, connections,
    compilation."""

    def __init__(self, environment: Environment, place: Place) -> None:
        """
        Args:
            environment: This process's environment.
            place: Its place in the gang.
        """
        self._environment = environment
        self._place = place
        self._joined = ExitStack()  # the process ends without leaving the group: a device may hang

    @cached_property
    def _device(self) -> Device:
        return choose("auto", local_rank=self._environment.local_rank)

    def start_memory(self) -> Measured:
        """Start the device, and copy once."""
        _copy(self._device, self._device.load(torch.ones(ELEMENTS)))
        return Measured()

    def memory(self) -> Measured:
        """Speed of copies in the device's memory."""
        return copied(self._device)

    def start_exchange(self) -> Measured:
        """Join the group of all processes with one collective; afterwards pairs of them may communicate (PyTorch
        documentation, `torch.distributed.batch_isend_irecv`)."""
        self._joined.enter_context(join(self._environment, self._device))
        return averaged(self._device, self._place.world_size)

    def exchange(self) -> Measured:
        """Speed of the exchange between this node and its faster neighbour."""
        if self._device.average is not None:
            return averaged(self._device, self._place.world_size)
        return exchanged(self._device, self._place)


def attempted(measure: Callable[[], Measured]) -> Measured:
    """A measurement with its duration; an error is a result."""
    began = time.monotonic()
    try:
        found = measure()
    except Exception as error:  # noqa: BLE001  (whatever a driver raises is the result of the test)
        first = next(iter(str(error).splitlines()), "")
        found = Measured(error=f"{type(error).__name__}: {first}")
    return replace(found, seconds=time.monotonic() - began)


def copied(device: Device) -> Measured:
    """Measure the speed of copies in the device's memory, and check that it reads the values that were written."""
    source = device.load(torch.ones(ELEMENTS))
    best, copies, began = 0.0, 0, time.perf_counter()
    while copies < REPETITIONS or time.perf_counter() - began < COPYING_SECONDS:
        copies += 1
        started = time.perf_counter()
        copy, last = _copy(device, source)
        best = max(best, 2 * source.nbytes / (time.perf_counter() - started) / 1e9)
        if last != 2:
            return Measured(error=f"a number in memory was {last} and should be 2")
    wrong = int((copy != 2).sum())
    return (
        Measured(error=f"{wrong} of {ELEMENTS} numbers in memory were wrong")
        if wrong
        else Measured(gigabytes_per_second=best)
    )


def _copy(device: Device, source: torch.Tensor) -> tuple[torch.Tensor, float]:
    copy = source + 1
    device.start_queued_work()
    return copy, float(copy[-1])  # reading it waits for the device


def averaged(device: Device, world_size: int) -> Measured:
    """Whether one collective of all processes works."""
    numbers = device.load(torch.ones(EXCHANGED_ELEMENTS))
    if device.average is not None:
        device.average([numbers], world_size, device.bucket_mib)
        device.start_queued_work()
    else:
        dist.all_reduce(numbers)
        numbers /= world_size
    mean = float(numbers[-1])
    return Measured() if mean == 1 else Measured(error=f"the mean of ones over all processes was {mean}")


def exchanged(device: Device, place: Place) -> Measured:
    """Speed of the exchange with the faster neighbour; partners are the processes of the same local rank."""
    best: Measured | None = None
    for node in partners(place.node, place.num_nodes):
        partner = node * place.per_node + place.rank % place.per_node
        now = attempted(partial(_exchanged, device, place.rank, partner))
        best = now if best is None else better(best, now)
    return Measured(error="there was no neighbour") if best is None else best


def _exchanged(device: Device, rank: int, partner: int) -> Measured:
    best = 0.0
    for _ in range(REPETITIONS):  # as many as the partner
        sent = device.load(torch.full((EXCHANGED_ELEMENTS,), float(rank)))
        received = device.load(torch.full((EXCHANGED_ELEMENTS,), -1.0))
        started = time.perf_counter()
        both = [dist.P2POp(dist.isend, sent, partner), dist.P2POp(dist.irecv, received, partner)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        last = float(received[-1])
        best = max(best, sent.nbytes / (time.perf_counter() - started) / 1e9)
        if last != partner:
            return Measured(error=f"rank {partner} sent {partner}, and {last} was received")
    return Measured(gigabytes_per_second=best)
