"""Print a line when all ranks of this node have ended while torchrun waits for those of other nodes.

A rank that fails ends torchrun at once. So a torchrun that sleeps, after all its processes have ended, is in its exit
barrier: its ranks ended with exit code 0. Linux only; elsewhere nothing is printed.
"""

from __future__ import annotations

import time
from pathlib import Path

from trainer.runtime.node import Node
from trainer.runtime.workers import Worker
from trainflow.protocol.ended_ranks import LINE

POLL_SECONDS = 0.5

QUIET_POLLS = 2
"""Torchrun slept for so many polls in a row, without processes and without using the CPU."""

PROC = Path("/proc")


def is_watched(node: Node) -> bool:
    """Whether the ranks of one node may end long before those of another, and nothing but torchrun waits for them.

    Between two rounds of an elastic gang torchrun runs without processes, too.
    """
    launch = node.launch
    return launch.launcher == "torchrun" and launch.elastic is None and launch.num_nodes > 1


def watch(torchrun: int) -> None:
    """Watch torchrun in a thread until its ranks or itself have ended.

    Args:
        torchrun: Its process id.
    """
    Worker(lambda: _watch(torchrun), name="ended-ranks").start()


def _watch(torchrun: int) -> None:
    if _waits_for_other_nodes(torchrun):
        print(LINE, flush=True)


def _waits_for_other_nodes(torchrun: int) -> bool:
    """Wait for the end of the ranks; False if torchrun ended with them, or cannot be watched."""
    had_ranks, quiet, before = False, 0, -1
    while quiet < QUIET_POLLS:
        time.sleep(POLL_SECONDS)
        try:
            has_ranks, (state, cpu_ticks) = _has_children(torchrun), _state(torchrun)
        except (OSError, ValueError, IndexError):
            return False
        if state == "Z":
            return False
        had_ranks = had_ranks or has_ranks
        is_quiet = had_ranks and not has_ranks and state == "S" and cpu_ticks == before
        quiet, before = quiet + 1 if is_quiet else 0, cpu_ticks
    return True


def _has_children(process: int) -> bool:
    files = (PROC / str(process) / "task").glob("*/children")
    return any(file.read_text().strip() for file in files)


def _state(process: int) -> tuple[str, int]:
    """State and CPU time of a process (proc(5), `/proc/pid/stat`: fields 3, 14 and 15)."""
    fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])
