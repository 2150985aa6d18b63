"""Refuse to train over EFA where memory cannot be locked: `python -m trainer.locked_memory --mebibytes N -- COMMAND`.

EFA registers the memory that it sends from, and the kernel locks registered memory. A container may lock 8 MiB unless
its node is configured otherwise; libfabric then fails with "Cannot allocate memory" (ENOMEM), deep inside the first
step. The check is made only where there are EFA devices. The command replaces this process.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainer.runtime import program
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import become
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, LockedMemoryTooSmall

DEVICES = Path("/sys/class/infiniband")
"""Folder in which Linux shows devices that memory is registered with, EFA interfaces among them."""

AMAZON = "0x1d0f"
"""PCI vendor of EFA interfaces. An InfiniBand card of another vendor, as in a workstation, is not checked."""

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LockConfig:
    """The amount of memory that has to be lockable."""

    mebibytes: int
    """Memory, in MiB, that the process must be allowed to lock."""


def main(argv: Sequence[str], _environment: Environment) -> NoReturn:
    """Check the limit, and replace this process by the command."""
    own, command = divided(argv)
    if not command:
        raise ConfigInvalid("Give the training's command behind `--`: python -m trainer.locked_memory … -- torchrun …")
    config = parse(LockConfig, own, program="trainer.locked_memory")
    require(config.mebibytes, soft_limit=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], devices=DEVICES)
    become(command)


def require(mebibytes: int, *, soft_limit: int, devices: Path) -> None:
    """Return if there are no EFA devices or the limit is large enough.

    Args:
        mebibytes: Memory, in MiB, that must be lockable.
        soft_limit: RLIMIT_MEMLOCK of this process, in bytes; RLIM_INFINITY (-1) for none.
        devices: The folder in which Linux shows the devices.

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


if __name__ == "__main__":
    program.raise_on_sigterm()
    sys.exit(program.run(main, sys.argv[1:], os.environ))
