"""The gang: the processes that train one model together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist

from trainer.device import Device
from trainer.runtime.environment import Environment
from trainer.runtime.errors import PeerLost, TrainerError, WorldSizeMismatch

Value = TypeVar("Value")

_PEER_GONE = re.compile(r"closed by peer|reset by peer|broken pipe|remote process exited", re.IGNORECASE)
"""Messages of gloo and NCCL about a peer that closed its connection."""


class Gang:
    """This process's view of the gang. Alone (world size 1) nothing is communicated."""

    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        control: dist.ProcessGroup | None,
        background: dist.ProcessGroup | None = None,
    ) -> None:
        """
        Args:
            rank: The number of this process in the gang.
            world_size: Number of processes.
            control: Group for plain Python values, over gloo whatever the device; None for a single process.
            background: Another such group, for a thread that works during the training; None without such a thread.
        """
        self.rank = rank
        self.world_size = world_size
        self.background = background
        self._control = control

    def from_rank0(self, make: Callable[[], Value]) -> Value:
        """Return on every rank what `make` returns on rank 0. An error that it raises there is raised on every rank.

        One process reads shared storage for all: 64 ranks that open the same shards at once would overload it.
        """
        if self._control is None:
            return make()
        told: list[Any] = [_outcome(make) if self.rank == 0 else None]
        dist.broadcast_object_list(told, src=0, group=self._control)
        outcome: _Outcome[Value] = told[0]
        if outcome.error is not None:
            outcome.error.is_common = True
            raise outcome.error
        return outcome.values[0]

    def gathered(self, value: Value) -> list[Value]:
        """The value of every rank, in the order of the ranks."""
        if self._control is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def means(self, values: Sequence[float]) -> list[float]:
        """The mean over all ranks of each value."""
        if self._control is None:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed, group=self._control)
        return [float(value) for value in summed / self.world_size]

    def barrier(self) -> None:
        """Wait until every rank has reached this point."""
        if self._control is not None:
            dist.barrier(group=self._control)


@contextmanager
def join(environment: Environment, device: Device, *, background: bool = False) -> Iterator[Gang]:
    """Join the process group of the gang, and leave it at the end.

    Args:
        environment: The environment, with this process's ranks.
        device: The device of this process.
        background: Whether another thread communicates while the training runs.

    Raises:
        WorldSizeMismatch: If the group has another size than the launcher said: some backends then give every rank
            a group of its own, and the ranks would train separately without an error.
        PeerLost: If another process ended during the training.
    """
    if environment.world_size == 1:
        yield Gang(rank=0, world_size=1, control=None)
        return
    dist.init_process_group(device.backend, init_method="xla://" if device.backend == "xla" else None)
    require_world_size(dist.get_world_size(), environment.world_size)
    control = dist.group.WORLD if device.backend == "gloo" else dist.new_group(backend="gloo")
    gang = Gang(
        rank=environment.rank,
        world_size=environment.world_size,
        control=control,
        background=dist.new_group(backend="gloo") if background else None,
    )
    try:
        yield gang
        gang.barrier()  # rank 0 may still be writing
    except RuntimeError as error:
        if not _PEER_GONE.search(str(error)):
            raise
        raise PeerLost(
            f"Rank {environment.rank} lost another process of the gang ({str(error).splitlines()[0]}); "
            "find the pod that ended first."
        ) from error
    dist.destroy_process_group()  # not after an error: leaving waits for the other processes, which may have ended


def require_world_size(actual: int, expected: int) -> None:
    """Require that the group has the size that the launcher announced."""
    if actual != expected:
        raise WorldSizeMismatch(
            f"The process group has {actual} processes and WORLD_SIZE is {expected}; check that the backend knows the "
            "launcher's rendezvous (MASTER_ADDR, MASTER_PORT) and start the job again."
        )


@dataclass(frozen=True)
class _Outcome(Generic[Value]):
    """The outcome of rank 0: a value, or the error that prevented it."""

    values: tuple[Value, ...] = ()
    error: TrainerError | None = None


def _outcome(make: Callable[[], Value]) -> _Outcome[Value]:
    try:
        return _Outcome(values=(make(),))
    except TrainerError as error:
        return _Outcome(error=error)
