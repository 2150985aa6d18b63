"""Keeps a network namespace, or makes a connection in one that another process keeps.

A program of its own, started with `python -I -S`: `hold` prints `ready` and keeps a new one until its standard input
ends; `connect DESCRIPTOR PID HOST PORT SECONDS` sends a connected socket over a socket that it has inherited.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
"""CLONE_NEWUSER and CLONE_NEWNET, from linux/sched.h."""
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41
"""`ioctl` SIOCSIFFLAGS, and IFF_UP and IFF_RUNNING."""
_NETLINK, _NEW_ROUTE, _CREATE_AND_CONFIRM = 16, 24, 0x405
"""AF_NETLINK, RTM_NEWROUTE, and NLM_F_REQUEST, NLM_F_ACK and NLM_F_CREATE."""
_LOCAL_TABLE, _BY_BOOT, _ON_HOST, _LOCAL = 255, 3, 254, 2
"""RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST and RTN_LOCAL."""
_OUTPUT_INTERFACE, _LOOPBACK = 4, 1
"""Attribute RTA_OIF, and the number of the loopback interface in every new network."""

_libc = ctypes.CDLL(None, use_errno=True)


def hold() -> None:
    """Keep a new network until standard input ends."""
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USER | _NEW_NETWORK), "a network namespace")
    # Users keep their numbers, so that containers are put into user namespaces of their own from here as from outside.
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as target:  # noqa: PTH123 (pathlib is slow to load)
            target.write(text)
    _bring_up()
    print("ready", flush=True)
    sys.stdin.read()


def connect(descriptor: str, pid: str, host: str, port: str, seconds: str) -> None:
    """Connect to a port of another process's network, and send the socket over an inherited one."""
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 (the program of `hold` needs no pathlib)
    from kubetwin.node import confinement

    control = socket.socket(fileno=int(descriptor))
    try:
        confinement.join(int(pid), ("user", "net"))
        made = socket.create_connection((host, int(port)), timeout=float(seconds))
    except OSError as error:
        control.send(struct.pack("i", error.errno or 110))  # without a number, it was the time
        return
    socket.send_fds(control, [b"c"], [made.fileno()])


def _bring_up() -> None:
    """Start the loopback interface, and let it have every address: programs connect to their machine's by its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket.fileno(), _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
    with socket.socket(_NETLINK, socket.SOCK_RAW, 0) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            route = struct.pack("BBBBBBBBI", family, 0, 0, 0, _LOCAL_TABLE, _BY_BOOT, _ON_HOST, _LOCAL, 0)
            route += struct.pack("HHI", 8, _OUTPUT_INTERFACE, _LOOPBACK)
            kernel.send(struct.pack("IHHII", 16 + len(route), _NEW_ROUTE, _CREATE_AND_CONFIRM, 1, 0) + route)
            (code,) = struct.unpack("i", kernel.recv(4096)[16:20])
            if code and family == socket.AF_INET:  # a machine may have no IPv6
                raise OSError(-code, os.strerror(-code), "routes of the containers' network")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold()
    else:
        connect(*sys.argv[2:])
