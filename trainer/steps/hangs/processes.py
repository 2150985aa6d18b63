"""The processes of a program, as `/proc` shows them. They are found on Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainer.runtime.process_status import ENDED, PROC, read_status

TICKS = os.sysconf("SC_CLK_TCK")

_FOR_A_SIGNAL = {"x86_64": (["34"], ["130"]), "aarch64": (["133"],)}
"""Numbers of the system calls pause and rt_sigsuspend."""

_WITH_FILE = {
    "x86_64": (["0"], ["1"], ["17"], ["18"], ["73"], ["74"], ["75"]),
    "aarch64": (["32"], ["63"], ["64"], ["67"], ["68"], ["82"], ["83"]),
}
"""Numbers of system calls whose first argument is an open file: read, write, pread, pwrite, flock, fsync, fdatasync."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process at one moment."""

    pid: int
    parent: int
    state: str
    cpu_seconds: float
    io_bytes: int
    """Bytes that it has read and written, by system calls and by the page cache."""
    switches: int = 0
    """Times that its main thread was given the CPU."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank with the processes that it has started."""

    number: int
    process: Process
    children: tuple[Process, ...]


def processes() -> dict[int, Process]:
    """All processes that can be read, by number."""
    found = (read(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def read(pid: int) -> Process | None:
    """A process; None if it has ended."""
    try:
        status = read_status(pid)
        return Process(
            pid=pid,
            parent=status.parent,
            state=status.state,
            cpu_seconds=status.cpu_ticks / TICKS,
            io_bytes=sum(_values(pid, "io", ("rchar", "wchar", "read_bytes", "write_bytes"))),
            switches=sum(_values(pid, "status", ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"))),
        )
    except (OSError, ValueError, IndexError):
        return None


def _values(pid: int, file: str, names: tuple[str, ...]) -> Iterator[int]:
    """Values of a file with a name and a number in each line; nothing where it cannot be read."""
    try:
        lines = (PROC / str(pid) / file).read_text().splitlines()
    except OSError:
        return
    yield from (int(line.split()[1]) for line in lines if line.partition(":")[0] in names)


def find_ranks(
    all_processes: Mapping[int, Process], registered: frozenset[int], root: int, *, first_rank: int
) -> list[Rank]:
    """The ranks below a process: those with a number in the variable RANK, the outermost of each number.

    A program that is started without a launcher is one rank.

    Args:
        all_processes: The processes.
        registered: Numbers of those that dump their stacks.
        root: The process that has started the program.
        first_rank: Number of the rank if no process has one in its variables.
    """
    below = [pid for pid in sorted(_below(all_processes, root)) if pid in registered]
    numbers = {pid: number for pid in below if (number := _rank_number(pid)) is not None}
    if not numbers:
        numbers = dict.fromkeys(below[:1], first_rank)
    outer: dict[int, int] = {}
    for pid, number in numbers.items():
        if not any(numbers.get(parent) == number for parent in _ancestors(all_processes, pid)):
            outer.setdefault(number, pid)
    return [
        Rank(
            number=number,
            process=all_processes[pid],
            children=tuple(all_processes[child] for child in sorted(_below(all_processes, pid))),
        )
        for number, pid in sorted(outer.items())
        if all_processes[pid].state not in ENDED
    ]


def _below(all_processes: Mapping[int, Process], root: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for process in all_processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting.extend(children.get(pid, ()))


def _ancestors(all_processes: Mapping[int, Process], pid: int) -> Iterator[int]:
    while (process := all_processes.get(pid)) is not None and process.parent != pid:
        pid = process.parent
        yield pid


def _rank_number(pid: int) -> int | None:
    try:
        variables = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    number = next((each[5:] for each in variables if each.startswith(b"RANK=")), b"")
    return int(number) if number.isdigit() else None


def is_paused(pid: int) -> bool:
    """Whether the main thread waits for any signal, so that one would let it go on."""
    return _system_call(pid)[:1] in _FOR_A_SIGNAL.get(os.uname().machine, ())


def catches(pid: int, signal_number: int) -> bool:
    """Whether a process has a handler for a signal: others would be ended by it."""
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal_number - 1) & 1)


def kernel_function(pid: int) -> str:
    """Function of the kernel in that the main thread waits; empty where it is hidden."""
    try:
        name = (PROC / str(pid) / "wchan").read_text().strip()
    except OSError:
        return ""
    return "" if name == "0" else name


def open_path(pid: int) -> str:
    """Path of the file that the main thread reads or writes now; empty if it does neither."""
    words = _system_call(pid)
    if words[:1] not in _WITH_FILE.get(os.uname().machine, ()):
        return ""
    try:
        path = (PROC / str(pid) / "fd" / str(int(words[1], 16))).readlink()
    except (OSError, ValueError, IndexError):
        return ""
    return str(path) if path.is_absolute() else ""


def _system_call(pid: int) -> list[str]:
    """Number and arguments of the system call of the main thread; empty where it runs, or may not be read."""
    try:
        words = (PROC / str(pid) / "syscall").read_text().split()
    except OSError:
        return []
    return words if words and words[0].isdigit() else []
