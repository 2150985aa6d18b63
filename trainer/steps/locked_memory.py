"""Refuse to train over EFA where memory cannot be locked.

EFA registers the memory that it sends from, and the kernel locks registered memory. A container may lock 8 MiB unless
its node is configured otherwise; libfabric then fails with "Cannot allocate memory" (ENOMEM), deep inside the first
step. The check is made only where there are EFA devices.
"""

from __future__ import annotations

import resource
from pathlib import Path

from trainer.runtime.errors import LockedMemoryTooSmall
from trainer.runtime.node import Node, Prepared
from trainflow.protocol.plan import LockedMemory

DEVICES = Path("/sys/class/infiniband")
"""Linux lists devices here that memory is registered with, such as EFA interfaces."""

AMAZON = "0x1d0f"
"""PCI vendor of EFA interfaces. An InfiniBand card of another vendor, as in a workstation, is not checked."""

MIB = 1 << 20


def prepare(step: LockedMemory, _node: Node) -> Prepared:
    """Check the limit.

    Raises:
        LockedMemoryTooSmall: If it is too low.
    """
    require(step.mebibytes, soft_limit=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], devices=DEVICES)
    return Prepared()


def require(mebibytes: int, *, soft_limit: int, devices: Path) -> None:
    """Check that a node with EFA devices lets processes lock enough memory.

    Args:
        mebibytes: Memory, in MiB, that must be lockable.
        soft_limit: RLIMIT_MEMLOCK of this process, in bytes; RLIM_INFINITY (-1) for none.
        devices: Folder with an entry for each device.

    Raises:
        LockedMemoryTooSmall: If the limit is lower.
    """
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= mebibytes * MIB:
        return
    if any(vendor.read_text().strip() == AMAZON for vendor in devices.glob("*/device/vendor")):
        raise LockedMemoryTooSmall(
            f"This container may lock {soft_limit / MIB:g} MiB of memory (`ulimit -l`), but EFA needs {mebibytes}; "
            "deploy the capacity stack, whose launch templates raise RLIMIT_MEMLOCK, and let the nodes be replaced "
            "(with Slurm: start slurmd with LimitMEMLOCK=infinity)."
        )
