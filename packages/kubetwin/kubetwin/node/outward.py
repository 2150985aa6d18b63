"""Connections of a container in a network of its own to other machines, and to servers of this one. Linux.

A network namespace without an interface of the machine lets nobody in, and nobody out. So a filter (seccomp) stops each
`connect` of the container's processes, and the supervisor, which has the machine's network, decides where it leads. For
a destination outside it replaces the socket by one of its own and lets the call go on: a socket belongs to the network
of its creation. It cannot be a limit for a program that wants to get out, and shall not be one: pods reach the
Internet. Other users and machines cannot get in, whatever the program does.

The supervisor and its child import this module, so it uses little of the standard library.
"""

from __future__ import annotations

import _socket
import _thread
import ctypes
import fcntl
import os
import struct

TYPE_CHECKING = False  # as `typing` has it, which would cost a fifth of the supervisor's start
if TYPE_CHECKING:
    from collections.abc import Callable

_SECCOMP, _PIDFD_OPEN, _PIDFD_GETFD = {"x86_64": 317, "aarch64": 277}, 434, 438
"""Numbers of system calls that the C library may not offer."""
_CONNECT = {"x86_64": (0xC000003E, 42), "aarch64": (0xC00000B7, 203)}
"""Architecture and number of `connect`, as a filter sees them (linux/audit.h)."""
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
"""A filter's verdicts SECCOMP_RET_USER_NOTIF and SECCOMP_RET_ALLOW."""
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
"""Instructions of a filter (linux/bpf_common.h)."""
_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
"""`ioctl` requests of linux/seccomp.h."""
_QUESTION, _ANSWER, _ADDED = "QIIiIQ6Q", "QqiI", "QIIII"
"""Their structures: seccomp_notif, seccomp_notif_resp, seccomp_notif_addfd."""
_GO_ON, _REPLACE = 1, 1
_LISTEN, _STREAM, _DATAGRAM = b"0A", _socket.SOCK_STREAM, _socket.SOCK_DGRAM
_FIRST_FREE_PORT = 1024
"""First port that processes of other users than root may listen on."""

_COPIED_OPTIONS = (
    *((_socket.SOL_SOCKET, getattr(_socket, f"SO_{name}", 0)) for name in ("KEEPALIVE", "BROADCAST")),
    *((_socket.IPPROTO_TCP, getattr(_socket, f"TCP_{name}", 0)) for name in ("NODELAY", "KEEPIDLE", "KEEPINTVL")),
    *((_socket.IPPROTO_TCP, getattr(_socket, f"TCP_{name}", 0)) for name in ("KEEPCNT", "USER_TIMEOUT")),
    (_socket.IPPROTO_IP, 11),  # IP_RECVERR, which resolvers set
    (41, 25),  # IPV6_RECVERR
)
"""Options that a socket may have before it connects; each is one number."""
_COPIED_TIMES = (20, 21)
"""SO_RCVTIMEO and SO_SNDTIMEO, which are structures."""

Address = tuple[int, bytes, int]
"""Family, address and port of a destination."""


class Channel:
    """The way of a filter's descriptor from the child, which installs it, to the supervisor, which answers."""

    def __init__(self) -> None:
        self._ours, self._theirs = _socket.socketpair()

    def install(self) -> None:
        """Ask the supervisor about every connection of this process from now on.

        Raises:
            OSError: If the kernel does not offer it.
        """
        descriptor = _install_filter()
        self._theirs.sendmsg([b"f"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", descriptor))])
        os.close(descriptor)

    def serve(self) -> None:
        """Answer the child's questions from now on, in a thread, which ends with this process."""
        self._theirs.close()
        _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        _byte, given, _flags, _address = self._ours.recvmsg(1, _socket.CMSG_SPACE(4))
        self._ours.close()
        if given:
            (descriptor,) = struct.unpack("i", given[0][2])
            while _answer(descriptor):
                pass


def leads_out(
    address: Address,
    *,
    is_own: Callable[[Address], bool],
    is_inside: Callable[[int], bool],
    is_offered: Callable[[int], bool],
) -> bool:
    """Whether a connection leaves the container's network.

    Args:
        address: Its destination.
        is_own: Whether an address is one of this machine's.
        is_inside: Whether something in the container's network listens at a port.
        is_offered: Whether the machine's network offers a port to this user's containers.
    """
    if not is_own(address):
        return True
    port = address[2]
    return not is_inside(port) and is_offered(port)


def destination(raw: bytes) -> Address | None:
    """The destination that a `sockaddr` names; None for another family than the Internet's."""
    if len(raw) < 8:
        return None
    (family,), (port,) = struct.unpack("H", raw[:2]), struct.unpack(">H", raw[2:4])
    if family == _socket.AF_INET:
        return family, raw[4:8], port
    if family == _socket.AF_INET6 and len(raw) >= 24:
        return family, raw[8:24], port
    return None


def has_listener(table: bytes, port: int, *, users: frozenset[int] | None = None, connected: bool = True) -> bool:
    """Whether a table of sockets, as `/proc/net` has it, has one that waits at a port.

    Args:
        table: The table's text.
        port: The port.
        users: Owners that count; None for all.
        connected: Whether its protocol has connections, so that only sockets that listen count.
    """
    ending = b":%04X" % port
    if ending not in table:
        return False
    for line in table.splitlines()[1:]:
        words = line.split()
        waits = words[1].endswith(ending) and (words[3] == _LISTEN or not connected)
        if waits and (users is None or int(words[7]) in users):
            return True
    return False


def _install_filter() -> int:
    machine = os.uname().machine
    if machine not in _CONNECT:
        raise OSError(38, "filter of system calls", machine)
    architecture, connect = _CONNECT[machine]
    program = (
        (_LOAD, 0, 0, 4),  # the architecture
        (_JUMP_IF_EQUAL, 0, 3, architecture),
        (_LOAD, 0, 0, 0),  # the system call's number
        (_JUMP_IF_EQUAL, 0, 1, connect),
        (_RETURN, 0, 0, _ASK),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    given = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _NEW_LISTENER, given)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "cannot be installed", "filter of system calls")
    return int(descriptor)


def _answer(descriptor: int) -> bool:
    """Answer one question; returns whether there can be more."""
    question = bytearray(struct.calcsize(_QUESTION))
    try:
        fcntl.ioctl(descriptor, _RECEIVE, question)
    except InterruptedError:
        return True
    except FileNotFoundError:  # the process that asked has ended, or all have
        return bool(_still_used(descriptor))
    identity, thread, _flags, _number, _architecture, _pointer, *arguments = struct.unpack(_QUESTION, question)
    error = 0
    try:
        _let_out(descriptor, identity, thread, arguments)
    except OSError as failure:
        error = failure.errno or 5
    except Exception:  # noqa: BLE001  # an answer is owed in any case: the program would wait for ever
        error = 5
    answer = (identity, 0, -error, 0) if error else (identity, 0, 0, _GO_ON)
    try:
        fcntl.ioctl(descriptor, _SEND, bytearray(struct.pack(_ANSWER, *answer)))
    except OSError:
        return True  # the process has ended meanwhile
    return True


def _still_used(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not any(event & select.POLLHUP for _descriptor, event in poll.poll(0))


def _let_out(descriptor: int, identity: int, thread: int, arguments: list[int]) -> None:
    """Replace the socket of a call by one of this process's network, if the call leads out.

    Raises:
        OSError: If that fails; the call shall fail in the same way.
    """
    number, pointer, length = arguments[0] & 0xFFFFFFFF, arguments[1], arguments[2] & 0xFFFFFFFF
    address = destination(_memory(thread, pointer, min(length, 128)))
    if address is None:
        return
    socket = _copied_socket(thread, number)
    if socket is None:
        return
    table = {_STREAM: "tcp", _DATAGRAM: "udp"}[socket.type]
    connected, ours = socket.type == _STREAM, frozenset({0, os.geteuid()})

    def is_inside(port: int) -> bool:
        return any(has_listener(each, port, connected=connected) for each in _tables(thread, table))

    def is_offered(port: int) -> bool:
        own = (has_listener(each, port, users=ours, connected=connected) for each in _tables(os.getpid(), table))
        return port < _FIRST_FREE_PORT or any(own)

    try:
        if leads_out(address, is_own=_is_own, is_inside=is_inside, is_offered=is_offered):
            _replace(descriptor, identity, thread, number, socket)
    finally:
        socket.close()


def _memory(thread: int, pointer: int, length: int) -> bytes:
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        return os.pread(memory, length, pointer)
    finally:
        os.close(memory)


def _copied_socket(thread: int, number: int) -> _socket.socket | None:
    """A copy of another process's socket; None for a socket of other protocols than the Internet's."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = libc.syscall(_PIDFD_OPEN, _process_id(thread), 0)
    if process < 0:
        raise OSError(ctypes.get_errno(), "process")
    copy = libc.syscall(_PIDFD_GETFD, process, number, 0)
    fault = ctypes.get_errno()
    os.close(process)
    if copy < 0:
        raise OSError(fault, "socket")
    try:
        socket = _socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
    if socket.family in (_socket.AF_INET, _socket.AF_INET6) and socket.type in (_STREAM, _DATAGRAM):
        return socket
    socket.close()
    return None


def _process_id(thread: int) -> int:
    with open(f"/proc/{thread}/status", "rb") as status:  # noqa: PTH123 (pathlib is slow to load)
        return next(int(line.split()[1]) for line in status if line.startswith(b"Tgid:"))


def _tables(process: int, name: str) -> list[bytes]:
    """The tables of sockets in a process's network."""
    found = []
    for version in ("", "6"):
        try:
            with open(f"/proc/{process}/net/{name}{version}", "rb") as table:  # noqa: PTH123
                found.append(table.read())
        except FileNotFoundError:
            continue  # a machine without IPv6
    return found


def _is_own(address: Address) -> bool:
    """Whether an address is one of this machine's: a socket can be bound to it."""
    family, raw, _port = address
    if family == _socket.AF_INET and raw[0] == 127:
        return True
    try:
        probe = _socket.socket(family, _DATAGRAM)
    except OSError:
        return False
    try:
        probe.bind((_socket.inet_ntop(family, raw), 0))
    except OSError:
        return False
    finally:
        probe.close()
    return True


def _replace(descriptor: int, identity: int, thread: int, number: int, old: _socket.socket) -> None:
    """Put a socket of this process's network in the place of another process's."""
    new = _socket.socket(old.family, old.type, old.proto)
    try:
        for level, option in _COPIED_OPTIONS:
            _copy(old, new, level, option, 4)
        for option in _COPIED_TIMES:
            _copy(old, new, _socket.SOL_SOCKET, option, 16)
        fcntl.fcntl(new.fileno(), fcntl.F_SETFL, fcntl.fcntl(old.fileno(), fcntl.F_GETFL))
        flags = os.O_CLOEXEC & _flags_of(thread, number)
        fcntl.ioctl(descriptor, _ADD_DESCRIPTOR, struct.pack(_ADDED, identity, _REPLACE, new.fileno(), number, flags))
    finally:
        new.close()


def _copy(old: _socket.socket, new: _socket.socket, level: int, option: int, size: int) -> None:
    try:
        value = old.getsockopt(level, option, size)
        if value.strip(b"\0"):
            new.setsockopt(level, option, value)
    except OSError:
        return  # not an option of this protocol


def _flags_of(thread: int, number: int) -> int:
    """Flags of another process's file descriptor."""
    with open(f"/proc/{thread}/fdinfo/{number}", "rb") as info:  # noqa: PTH123
        return next(int(line.split()[1], 8) for line in info if line.startswith(b"flags:"))
