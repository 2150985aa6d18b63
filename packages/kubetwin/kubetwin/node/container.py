"""One run of one container: a supervised process group, its log and its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kubetwin.background import Worker, surviving
from kubetwin.node.log_writer import ContainerLog
from kubetwin.node.supervised import Streams, Supervised

_PIPE_BYTES = 1024 * 1024
"""Room for output between two reads: writers need not wait for the node. Linux's limit for users."""

_LAST_OUTPUT_SECONDS = 2.0
"""Longest pause in the last output: after all known processes have ended, the pipe may hold output that is not stored.
Only a process that escaped its group keeps the pipe open longer."""

_ALL_OUTPUT_SECONDS = 60.0
"""Longest time for the last output, in case a process that escaped goes on printing."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """Exit of a container."""

    code: int
    """128 + n for a process that signal n killed."""
    reason: str
    finished_at: datetime


class ContainerProcess:
    """A running container.

    Args:
        argv: The command.
        environment: Its whole environment.
        folder: Its working directory.
        log: Takes its output.
        on_exit: Called once, from another thread, when everything of the container has ended and its output is stored.
        walls: Description of the walls around it; none if not given.

    Raises:
        CannotStart: If the command does not exist, or cannot be executed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        log: ContainerLog,
        on_exit: Callable[[Exit], None],
        *,
        walls: Sequence[str] = (),
    ) -> None:
        self.log = log
        self.started_at = datetime.now(UTC)
        self._on_exit = on_exit
        self._kill_reason: str | None = None
        output, theirs = os.pipe()
        _widen(output)
        try:
            self._process = Supervised(argv, environment, folder, Streams(output=theirs, error=theirs), walls)
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(theirs)
        self.pid = self._process.pid
        self._pump = Worker(self._copy_output, output, name="node-output")
        self._pump.start()
        Worker(self._await_exit, name="node-wait").start()

    @property
    def supervisor_pid(self) -> int:
        """The process that is the root of everything the container has started."""
        return self._process.supervisor_pid

    def terminate(self) -> None:
        """Ask the process group to end (SIGTERM)."""
        self._process.terminate()

    def kill(self, reason: str | None = None) -> None:
        """Kill everything of the container (SIGKILL).

        Args:
            reason: Reason of the end, as it is reported.
        """
        self._kill_reason = reason or self._kill_reason
        self._process.kill()

    def _copy_output(self, output: int) -> None:
        try:
            self.log.copy_from(output)
        finally:
            os.close(output)

    def _await_exit(self) -> None:
        code = self._process.wait()
        self._store_last_output()
        surviving(self.log.close, name="end of a container's log")  # the pod waits for what follows
        reason = self._kill_reason or ("Completed" if code == 0 else "Error")
        self._on_exit(Exit(code=code, reason=reason, finished_at=datetime.now(UTC)))

    def _store_last_output(self) -> None:
        """Wait until the output ends, or pauses for long."""
        end, size = time.monotonic() + _ALL_OUTPUT_SECONDS, -1
        while self._pump.is_alive() and self.log.size > size and time.monotonic() < end:
            size = self.log.size
            self._pump.join(_LAST_OUTPUT_SECONDS)


def _widen(pipe: int) -> None:
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            return  # the user's pipes have used up their room
