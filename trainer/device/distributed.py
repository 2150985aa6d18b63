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
"""How gloo and NCCL say that the other end of a connection is gone."""


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
            rank: This process.
            world_size: Number of processes.
            control: Group for plain Python values, over gloo whatever the device; None alone.
            background: Another such group, for a thread that works beside the training; None if there is no need.
        """
        self.rank = rank
        self.world_size = world_size
        self.background = background
        self._control = control

    def from_rank0(self, make: Callable[[], Value]) -> Value:
        """What `make` returns on rank 0, on every rank. An error that it raises there is raised everywhere.

        One process looks at shared storage for all: 64 ranks that open the same shards at once would be a burden.
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

    def means(self, values: Sequence[float]) -> list[float]:
        """The mean over all ranks of each value."""
        if self._control is None:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed, group=self._control)
        return [float(value) for value in summed / self.world_size]

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self._control is not None:
            dist.barrier(group=self._control)


@contextmanager
def join(environment: Environment, device: Device, *, background: bool = False) -> Iterator[Gang]:
    """Meet the other processes that the launcher started; leave the group at the end.

    Args:
        environment: Who this process is.
        device: What it trains on.
        background: Whether a thread beside the training will communicate too.

    Raises:
        WorldSizeMismatch: If the group has another size than the launcher said: some backends then hand every rank
            a world of its own, and the ranks would train apart without a word.
        PeerLost: If another process went away in the middle.
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
            "look for the pod that ended first."
        ) from error
    dist.destroy_process_group()  # not after an error: the others may be gone, and leaving waits for them


def require_world_size(actual: int, expected: int) -> None:
    """The group that formed has to be the one that was launched."""
    if actual != expected:
        raise WorldSizeMismatch(
            f"The process group has {actual} processes and WORLD_SIZE is {expected}; check that the backend knows the "
            "launcher's rendezvous (MASTER_ADDR, MASTER_PORT) and start the job again."
        )


@dataclass(frozen=True)
class _Outcome(Generic[Value]):
    """What rank 0 found: one value, or the error that prevented it."""

    values: tuple[Value, ...] = ()
    error: TrainerError | None = None


def _outcome(make: Callable[[], Value]) -> _Outcome[Value]:
    try:
        return _Outcome(values=(make(),))
    except TrainerError as error:
        return _Outcome(error=error)
