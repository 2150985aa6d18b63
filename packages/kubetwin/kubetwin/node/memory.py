"""Enforces memory limits as the kernel does with a container's cgroup, by polling."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil

from kubetwin.background import Worker, surviving

_INTERVAL_SECONDS = 0.5
"""Poll interval: short compared with the time to fill gigabytes, long compared with the 2 ms of a poll."""


class MemoryWatch:
    """Kills containers that exceed their memory limit. Does not poll while none has a limit."""

    def __init__(self) -> None:
        self._watched: dict[int, tuple[int, Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = Worker(self._run, name="node-memory")

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def add(self, pid: int, limit_bytes: int, on_excess: Callable[[], None]) -> None:
        """Watch the processes under `pid`; call `on_excess`, once, when they use more than the limit."""
        with self._changed:
            self._watched[pid] = (limit_bytes, on_excess)
            self._changed.notify_all()

    def remove(self, pid: int) -> None:
        """Forget about `pid`."""
        with self._changed:
            self._watched.pop(pid, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or bool(self._watched))
                if self._stopped or self._changed.wait_for(lambda: self._stopped, _INTERVAL_SECONDS):
                    return
                watched = dict(self._watched)
            for pid, (limit_bytes, on_excess) in watched.items():
                surviving(self._check, pid, limit_bytes, on_excess, name="memory limits")

    def _check(self, pid: int, limit_bytes: int, on_excess: Callable[[], None]) -> None:
        if uses_more_than(pid, limit_bytes):
            self.remove(pid)
            on_excess()


def uses_more_than(pid: int, limit_bytes: int) -> bool:
    """Whether the processes under `pid` use more memory than the limit.

    Resident sizes count a page once for every process that shares it, such as those of a library. So
    where their sum is too large, the proportional sizes decide, which share such pages out.
    """
    try:
        processes = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return False
    if sum(_resident(process) for process in processes) <= limit_bytes:
        return False
    return sum(_proportional(process) for process in processes) > limit_bytes


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _proportional(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.Error:
        return _resident(process)
    return int(getattr(memory, "pss", memory.rss))
