"""One run of one container: a supervised process group, its log and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kubetwin.node.log_writer import ContainerLog

_SUPERVISOR = Path(__file__).with_name("supervisor.py")

_PIPE_BYTES = 1024 * 1024
"""Room for output between two reads: writers need not wait for the node. Linux's limit for users."""

_LAST_OUTPUT_SECONDS = 2.0
"""Time to wait for the end of the output after all known processes ended, in case one escaped its group."""


class CannotStart(Exception):
    """The command of a container could not be started.

    Attributes:
        exit_code: 127 if there is no such command, 126 if it cannot be executed; as a shell has it.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


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
        on_exit: Called once, from another thread, when everything of the container has ended and its
            output is stored.

    Raises:
        CannotStart: If there is no such command, or it cannot be executed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        log: ContainerLog,
        on_exit: Callable[[Exit], None],
    ) -> None:
        self.log = log
        self.started_at = datetime.now(UTC)
        self._on_exit = on_exit
        self._kill_reason: str | None = None
        self._supervisor: subprocess.Popen[bytes]
        self._control, theirs = socket.socketpair()
        with theirs:
            output = self._start_supervisor(argv, environment, folder, theirs)
        self._reports = self._control.makefile("rb")
        report = self._reports.readline().split()
        if report[:1] != [b"started"]:
            self._hang_up()
            os.close(output)
            self._supervisor.wait()
            raise _cannot_start(argv, report)
        self.pid = int(report[1])
        self._pump = threading.Thread(target=self._copy_output, args=(output,), name="node-output", daemon=True)
        self._pump.start()
        threading.Thread(target=self._await_exit, name="node-wait", daemon=True).start()

    @property
    def supervisor_pid(self) -> int:
        """The process that is the root of everything the container has started."""
        return self._supervisor.pid

    def terminate(self) -> None:
        """Ask the process group to end (SIGTERM)."""
        self._order(b"T")

    def kill(self, reason: str | None = None) -> None:
        """Kill everything of the container (SIGKILL).

        Args:
            reason: Reason of the end, as it is reported.
        """
        self._kill_reason = reason or self._kill_reason
        self._order(b"K")

    def _start_supervisor(
        self, argv: Sequence[str], environment: dict[str, str], folder: Path, control: socket.socket
    ) -> int:
        output, theirs = os.pipe()
        _widen(output)
        try:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SUPERVISOR), environment.get("LC_CTYPE", ""), *argv],
                env=environment,
                cwd=folder,
                stdin=control.fileno(),
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(output)
            self._control.close()
            raise CannotStart(f"cannot start {argv[0]!r} in {folder}: {error}", 128) from error
        finally:
            os.close(theirs)
        return output

    def _copy_output(self, output: int) -> None:
        try:
            self.log.copy_from(output)
        finally:
            os.close(output)

    def _await_exit(self) -> None:
        report = self._reports.readline().split()
        self._supervisor.wait()
        if report[:1] == [b"exited"]:
            code = int(report[1])
        else:  # the supervisor was killed
            _kill_group(self.pid)
            code = 128 + signal.SIGKILL
        self._pump.join(_LAST_OUTPUT_SECONDS)
        self.log.close()
        reason = self._kill_reason or ("Completed" if code == 0 else "Error")
        self._hang_up()
        self._on_exit(Exit(code=code, reason=reason, finished_at=datetime.now(UTC)))

    def _hang_up(self) -> None:
        self._reports.close()
        self._control.close()

    def _order(self, order: bytes) -> None:
        try:
            self._control.sendall(order)
        except OSError:
            return  # it has ended


def _cannot_start(argv: Sequence[str], report: list[bytes]) -> CannotStart:
    if report[:1] != [b"failed"]:
        return CannotStart(f'exec: "{argv[0]}": its supervisor ended at once', 128)
    number = int(report[1])
    if number in (2, 20):  # ENOENT, ENOTDIR
        return CannotStart(f'exec: "{argv[0]}": executable file not found in $PATH', 127)
    return CannotStart(f'exec: "{argv[0]}": {os.strerror(number).lower()}', 126)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _widen(pipe: int) -> None:
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            return  # the user's pipes have used up their room
