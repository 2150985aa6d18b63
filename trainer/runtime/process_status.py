"""States and children of processes, as `/proc` shows them on Linux."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

ENDED = ("Z", "X")
"""States of a process that has ended."""


@dataclass(frozen=True, kw_only=True)
class ProcessStatus:
    """The fields of `/proc/PID/stat` that are used here (proc(5): fields 3, 4, 14 and 15)."""

    state: str
    parent: int
    cpu_ticks: int
    """CPU time in user and kernel mode, in clock ticks."""


def read_status(pid: int) -> ProcessStatus:
    """The status of a process.

    Raises:
        OSError, ValueError, IndexError: If it has ended, or cannot be read.
    """
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return ProcessStatus(state=fields[0], parent=int(fields[1]), cpu_ticks=int(fields[11]) + int(fields[12]))


def children(pid: int) -> Iterator[int]:
    """Process ids of the children of a process; none of one that has ended."""
    for file in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended since
            yield from map(int, file.read_text().split())
