"""The network of the containers behind walls: a network namespace that no other user and no other machine reaches.

All containers of a cluster share it, as pods of a cluster share one network. A process that does nothing else keeps it.
`outward` lets connections out of it. Linux only.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Self

_PROGRAM = Path(__file__).with_name("network_holder.py")


class NoNetwork(Exception):
    """A network of their own cannot be had for containers; the text is the machine's reason."""


class PodNetwork:
    """A network namespace, which lasts until it is closed.

    Raises:
        NoNetwork: If this machine does not give its users any.

    Attributes:
        pid: The process that keeps it.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise NoNetwork("only Linux has network namespaces")
        command = [sys.executable, "-I", "-S", str(_PROGRAM), "hold"]
        # A session of its own: Ctrl-C in the terminal is for the owner, who ends it after the containers.
        self._holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._holder.pid
        assert self._holder.stdout is not None and self._holder.stderr is not None  # noqa: S101 (they are pipes)
        if self._holder.stdout.readline() != b"ready\n":
            reason = self._holder.stderr.read().decode(errors="replace").strip()
            self.close()
            raise NoNetwork(reason.splitlines()[-1] if reason else "its process ended at once")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process that keeps it. Safe to repeat."""
        self._holder.kill()
        for stream in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            if stream is not None:
                stream.close()
        self._holder.wait()


def connect(network: int | None, host: str, port: int, *, timeout_seconds: float) -> socket.socket:
    """A connection into the containers' network.

    Args:
        network: The process that keeps the network; None for the machine's own.
        host: Address in it.
        port: Port in it.
        timeout_seconds: Longest time.

    Raises:
        OSError: If nothing listens there.
    """
    if network is None:
        return socket.create_connection((host, port), timeout=timeout_seconds)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            words = ["connect", str(theirs.fileno()), str(network), host, str(port), str(timeout_seconds)]
            command = [sys.executable, "-I", "-S", str(_PROGRAM), *words]
            subprocess.run(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, check=False)
        answer, descriptors, _flags, _address = socket.recv_fds(ours, 4, 1)
    if not descriptors:
        number = struct.unpack("i", answer)[0] if len(answer) == 4 else 5
        raise OSError(number, "cannot connect")
    connection = socket.socket(fileno=descriptors[0])
    connection.settimeout(timeout_seconds)
    return connection
