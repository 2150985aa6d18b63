"""Ports that stay free while no process listens on them."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from local.slurm.configuration import ADDRESS, Ports
from local.slurm.errors import SlurmError

_LOWEST = 10_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 100


def free_ports(*, num_nodes: int) -> Ports:
    """Ports for a cluster, below those that the kernel gives to outgoing connections.

    A daemon that is down for a while has to find its port free again, so the kernel must not give it to another
    connection.

    Raises:
        SlurmError: If all ports are in use.
    """
    controller, rest, *nodes = _free(2 + num_nodes)
    return Ports(controller=controller, rest=rest, nodes=tuple(nodes))


def _free(count: int) -> list[int]:
    for _ in range(_ATTEMPTS):
        candidates = random.sample(range(_LOWEST, _ephemeral_start()), count)
        try:
            with ExitStack() as held:
                for port in candidates:
                    held.enter_context(socket.socket()).bind((ADDRESS, port))
        except OSError:
            continue
        return candidates
    raise SlurmError(f"There are no {count} free ports on {ADDRESS} for Slurm's daemons; end other servers.")


def _ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except OSError:
        return 32_768  # Linux's default
