"""One of Slurm's daemons, under a supervisor that ends all of its processes."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kubetwin.node.supervised import below_supervisor

from local.slurm.errors import SlurmError

STOP_SECONDS = 15.0
"""Time limit for a daemon to stop by itself."""


class Daemon:
    """A process that can be started and stopped again and again.

    Its supervisor is the one of the process nodes: it adopts every orphan below the daemon, such as `slurmstepd` and
    processes of jobs, and kills everything on request, or when this process is gone for any reason.
    """

    def __init__(
        self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], log: Path, writes_log: bool = False
    ) -> None:
        """Prepare, without starting it.

        Args:
            name: The name in messages.
            argv: Its command, to stay in the foreground.
            environment: Its whole environment.
            log: The file for its output.
            writes_log: Whether it opens `log` itself; its output is the same, then, and dropped.
        """
        self.name, self._argv, self._environment, self._log = name, list(argv), dict(environment), log
        self._writes_log = writes_log
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._confirmed = False

    @property
    def running(self) -> bool:
        """Whether it was started and has neither ended nor been stopped."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def start(self) -> None:
        """Start it, unless it runs.

        Raises:
            SlurmError: If its program cannot be executed.
        """
        start_all([self])

    def spawn(self) -> None:
        """Start its supervisor, unless it runs; `confirm` reports the result."""
        if self.running:
            return
        self.stop()
        self._control, theirs = socket.socketpair()
        with theirs, (Path("/dev/null") if self._writes_log else self._log).open("ab") as output:
            self._supervisor = subprocess.Popen(
                below_supervisor(self._argv),
                env=self._environment,
                cwd="/",
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._confirmed = False

    def confirm(self) -> None:
        """Wait until its program is executed.

        The supervisor's report has to be read: unread, it would make the end of the connection an error.

        Raises:
            SlurmError: If it cannot be.
        """
        if self._confirmed or self._control is None:
            return
        report = self._control.recv(64).decode()
        if not report.startswith("started"):
            raise SlurmError(f"{self._argv[0]} cannot be executed ({report.strip() or 'its supervisor has ended'}).")
        self._confirmed = True

    def stop(self, *, graceful: bool = False) -> None:
        """Stop it and all processes that it has started; safe to repeat.

        Args:
            graceful: Let it save its state first.
        """
        if graceful and self._supervisor is not None and self._control is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # it has ended, or will not
                self._control.sendall(b"T")
                self._supervisor.wait(STOP_SECONDS)
        self.let_go()
        if self._supervisor is not None:
            self._supervisor.wait(STOP_SECONDS)
            self._supervisor = None

    def let_go(self) -> None:
        """Have its supervisor kill everything, without waiting for it."""
        if self._control is not None:
            self._control.close()
            self._control = None

    def require_running(self) -> None:
        """Require that it still runs.

        Raises:
            SlurmError: If it has ended; the message has the last line of its log.
        """
        if not self.running:
            raise SlurmError(f"{self.name} could not be started: {self.last_words()}")

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return lines[-1] if lines else "it said nothing"


def start_all(daemons: Iterable[Daemon]) -> None:
    """Start daemons side by side.

    Raises:
        SlurmError: If a program cannot be executed.
    """
    daemons = list(daemons)
    for daemon in daemons:
        daemon.spawn()
    for daemon in daemons:
        daemon.confirm()
