"""Runs one container's process and kills everything that it started.

A program of its own, started with `python -I -S`: standard library only, and as little of that as
possible, because every container waits for its start. Its arguments are the value that LC_CTYPE shall have
(Python sets that variable when it starts; empty for none), the file descriptor of the command's standard input
(empty for none; with `tty:` before it, it is the command's terminal), the number of words that describe the walls
around the command, these words (`confinement`), and the command. Standard input is a socket to the node:

* to the node go the lines `started PID`, `failed ERRNO` (with the path that the walls failed at, if they did) and
  `exited CODE` (128 + n for signal n);
* from the node come the bytes `T` (SIGTERM to the process group) and `K` (SIGKILL to everything);
* its end of file means that the node has ended in some way: everything is killed.

On Linux the supervisor adopts every orphan below it, so that processes which left the group, such as the
workers that torchrun starts in sessions of their own, are found and killed too. Elsewhere only the
process group is.
"""

from __future__ import annotations

import os
import select
import signal
import sys

TYPE_CHECKING = False  # as `typing` has it, which would cost a fifth of the start
if TYPE_CHECKING:
    from collections.abc import Callable

    from kubetwin.node.outward import Channel

    Prctl = Callable[[int, int], int]

_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
"""`prctl` options, from linux/prctl.h."""

_CONTROL = 0
"""File descriptor of the socket to the node."""

_TERMINAL = "tty:"


def main() -> None:
    """Run the command given as arguments until it ends, the node orders its end, or the node ends."""
    _, character_type, source, num_walls, *words = sys.argv
    walls, argv = words[: int(num_walls)], words[int(num_walls) :]
    os.environ["LC_CTYPE"] = character_type
    if not character_type:
        del os.environ["LC_CTYPE"]
    prctl = _prctl() if sys.platform == "linux" else None
    if prctl is not None:
        prctl(_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    pid, error = _spawn(argv, source, walls, prctl)
    if error:
        _report(f"failed {error}")
        return
    _report(f"started {pid}")
    status = _wait(pid, wake_read)
    _kill_everything(pid)
    _report(f"exited {status}")


def _spawn(argv: list[str], source: str, walls: list[str], prctl: Prctl | None) -> tuple[int, str]:
    """Start the command in a session of its own; returns its pid, and the error if it could not be started."""
    error_read, error_write = os.pipe()  # closed by a successful exec
    outward = _outward() if walls else None
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            _take_input(source)
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:  # as a container begins
                signal.signal(number, signal.SIG_DFL)
            if outward is not None:
                _confine(walls, error_write, outward)
            if prctl is not None:
                prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)  # a change of the user would have undone it
            os.execvp(argv[0], argv)  # noqa: S606 (no shell: as it is meant)
        except OSError as failure:
            os.write(error_write, str(failure.errno).encode())
        finally:
            os._exit(127)
    os.close(error_write)
    if outward is not None:
        outward.serve()
    if source:
        os.close(int(source.removeprefix(_TERMINAL)))
    error = os.read(error_read, 4096)
    os.close(error_read)
    return pid, error.decode()


def _outward() -> Channel:
    """Channel of the child for questions to this process about its connections."""
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 (pathlib is slow to load)
    from kubetwin.node.outward import Channel

    return Channel()


def _confine(walls: list[str], error: int, outward: Channel) -> None:
    """Put this process behind its walls, or end it."""
    from kubetwin.node import confinement

    try:
        confinement.enter(walls, outward.install)
    except OSError as failure:
        os.write(error, f"{failure.errno} {failure.filename}".encode())
        os._exit(127)


def _take_input(source: str) -> None:
    """Give the process that runs the command its standard input, and its terminal if that is one."""
    descriptor = int(source.removeprefix(_TERMINAL)) if source else os.open(os.devnull, os.O_RDONLY)
    os.dup2(descriptor, _CONTROL)
    os.close(descriptor)
    if source.startswith(_TERMINAL):
        import fcntl
        import termios

        fcntl.ioctl(_CONTROL, termios.TIOCSCTTY, 0)


def _wait(pid: int, wake_read: int) -> int:
    """The exit code of the command's own process, while orders from the node are obeyed."""
    poll = select.poll()
    poll.register(_CONTROL, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        for descriptor, _event in poll.poll():
            if descriptor == wake_read:
                os.read(wake_read, 4096)
                continue
            orders = os.read(_CONTROL, 64)
            if b"K" in orders or not orders:
                _signal_group(pid, signal.SIGKILL)
                return 128 + signal.SIGKILL
            _signal_group(pid, signal.SIGTERM)
        status = _reap(pid)
        if status is not None:
            return status


def _reap(pid: int) -> int | None:
    """Collect ended children; the command's exit code if it is among them."""
    code = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if ended == 0:
            return code
        if ended == pid:
            result = os.waitstatus_to_exitcode(status)
            code = result if result >= 0 else 128 - result


def _kill_everything(pid: int) -> None:
    """Kill the rest of the group, and every process that was reparented to this one."""
    _signal_group(pid, signal.SIGKILL)
    while True:
        for child in _children():
            _signal_group(child, signal.SIGKILL)
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)  # its children are reparented to this process: another round
        except ChildProcessError:
            return


def _children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children") as listing:  # noqa: PTH123 (pathlib is slow to load)
            return [int(child) for child in listing.read().split()]
    except OSError:  # a kernel without that file, or no Linux
        return [pid for pid in _all_processes() if _parent_id(pid) == me]


def _all_processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def _parent_id(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        return


def _report(line: str) -> None:
    try:
        os.write(_CONTROL, line.encode() + b"\n")
    except OSError:
        return  # the node has ended


def _prctl() -> Prctl | None:
    try:
        import ctypes

        return ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None


if __name__ == "__main__":
    main()
