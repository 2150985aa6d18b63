"""Print a line when all ranks of this node have ended while torchrun waits for those of other nodes.

A rank that fails ends torchrun at once. So a torchrun that sleeps, after all its processes have ended, is in its exit
barrier: its ranks ended with exit code 0. Linux only; elsewhere nothing is printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.runtime.node import Node
from trainer.runtime.process_status import children, read_status
from trainer.runtime.workers import Worker
from trainflow.protocol.ended_ranks import LINE

POLL_SECONDS = 0.5

QUIET_POLLS = 2
"""Torchrun slept for so many polls in a row, without processes and without using the CPU."""


def watcher(node: Node) -> Callable[[int], None] | None:
    """The watch for a gang whose ranks of one node may end long before those of another, while only torchrun waits.

    None for other programs. Between two rounds of an elastic gang torchrun runs without processes, too.
    """
    launch = node.launch
    return watch if launch.launcher == "torchrun" and launch.elastic is None and launch.num_nodes > 1 else None


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
            has_ranks, now = any(True for _ in children(torchrun)), read_status(torchrun)
        except (OSError, ValueError, IndexError):
            return False
        if now.state == "Z":
            return False
        had_ranks = had_ranks or has_ranks
        is_quiet = had_ranks and not has_ranks and now.state == "S" and now.cpu_ticks == before
        quiet, before = quiet + 1 if is_quiet else 0, now.cpu_ticks
    return True
