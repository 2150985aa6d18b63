"""A command below the supervisor, which ends together with everything that the command has started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SUPERVISOR = Path(__file__).with_name("supervisor.py")


class CannotStart(Exception):
    """A command could not be started.

    Attributes:
        exit_code: 127 if the command does not exist, 126 if it cannot be executed; as in a shell.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Streams:
    """File descriptors of a command. They stay the caller's, who closes them after the start."""

    output: int
    error: int
    input: int | None = None
    """Standard input; /dev/null if not given."""
    terminal: bool = False
    """Whether the standard input is a terminal, which becomes the command's own."""


class Supervised:
    """A running command.

    Args:
        argv: The command.
        environment: Its whole environment.
        folder: Its working directory.
        streams: Its standard streams.
        walls: Description of the walls around it, from `kubetwin.node.isolation`; none if not given.

    Raises:
        CannotStart: If the command does not exist, or cannot be executed.

    Attributes:
        pid: Process id of the command, and of its process group.
        supervisor_pid: The process that is the root of everything the command has started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        streams: Streams,
        walls: Sequence[str] = (),
    ) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._supervisor = self._start(argv, environment, folder, streams, walls, theirs)
        self.supervisor_pid = self._supervisor.pid
        self._reports = self._control.makefile("rb")
        report = self._reports.readline().split(maxsplit=2)
        if report[:1] != [b"started"]:
            self._hang_up()
            self._supervisor.wait()
            raise _cannot_start(argv, report)
        self.pid = int(report[1])

    def wait(self) -> int:
        """The exit code, when everything has ended: 128 + n for a process that signal n killed. To be called once."""
        report = self._reports.readline().split()
        self._supervisor.wait()
        self._hang_up()
        if report[:1] == [b"exited"]:
            return int(report[1])
        _kill_group(self.pid)  # the supervisor was killed
        return 128 + signal.SIGKILL

    def terminate(self) -> None:
        """Ask the process group to end (SIGTERM)."""
        self._order(b"T")

    def kill(self) -> None:
        """Kill everything that the command has started (SIGKILL)."""
        self._order(b"K")

    def _start(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        streams: Streams,
        walls: Sequence[str],
        control: socket.socket,
    ) -> subprocess.Popen[bytes]:
        source = "" if streams.input is None else f"{'tty:' if streams.terminal else ''}{streams.input}"
        try:
            return subprocess.Popen(
                below_supervisor(argv, character_type=environment.get("LC_CTYPE", ""), source=source, walls=walls),
                env=environment,
                cwd=folder,
                stdin=control.fileno(),
                stdout=streams.output,
                stderr=streams.error,
                pass_fds=() if streams.input is None else (streams.input,),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._control.close()
            raise CannotStart(f"cannot start {argv[0]!r} in {folder}: {error}", 128) from error

    def _hang_up(self) -> None:
        self._reports.close()
        self._control.close()

    def _order(self, order: bytes) -> None:
        try:
            self._control.sendall(order)
        except OSError:
            return  # it has ended


def below_supervisor(
    argv: Sequence[str], *, character_type: str = "", source: str = "", walls: Sequence[str] = ()
) -> list[str]:
    """The command that runs `argv` below a supervisor, whose docstring says what the other words mean."""
    return [sys.executable, "-I", "-S", str(_SUPERVISOR), character_type, source, str(len(walls)), *walls, *argv]


def _cannot_start(argv: Sequence[str], report: list[bytes]) -> CannotStart:
    if report[:1] != [b"failed"]:
        return CannotStart(f'exec: "{argv[0]}": its supervisor ended at once', 128)
    number = int(report[1])
    if len(report) == 3:
        place = report[2].decode(errors="replace").strip()
        return CannotStart(f"the container's walls cannot be made: {place}: {os.strerror(number).lower()}", 128)
    if number in (2, 20):  # ENOENT, ENOTDIR
        return CannotStart(f'exec: "{argv[0]}": executable file not found in $PATH', 127)
    return CannotStart(f'exec: "{argv[0]}": {os.strerror(number).lower()}', 126)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
