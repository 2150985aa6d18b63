"""Commands that a helper starts: the words behind its own arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from trainer.runtime.errors import ConfigInvalid

NODE_RANK = "--node_rank"
"""The launchers' flag for the node's number in its gang."""


FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class SignalForwarding:
    """Passes this process's signals to its children, also those that come before the children are started."""

    def __init__(self) -> None:
        self._children: Sequence[subprocess.Popen[Any]] | None = None
        self._early: list[int] = []
        self.received: int | None = None
        """The newest signal; None before the first."""
        for signum in FORWARDED:
            signal.signal(signum, self._forward)

    def forward_to(self, *children: subprocess.Popen[Any]) -> None:
        """Pass on what has come and what will come."""
        self._children = children
        for signum in self._early:
            self._send(signum)

    def stop(self) -> None:
        """Let the signals act on this process again."""
        for signum in FORWARDED:
            signal.signal(signum, signal.SIG_DFL)

    def _forward(self, signum: int, _frame: FrameType | None) -> None:
        self.received = signum
        if self._children is None:
            self._early.append(signum)
        else:
            self._send(signum)

    def _send(self, signum: int) -> None:
        for child in self._children or ():
            child.send_signal(signum)


def started(command: Sequence[str], variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a command as a child that gets this process's signals from now on.

    Args:
        command: The program and its words.
        variables: Environment variables in addition to those of this process.

    Raises:
        ConfigInvalid: If the program does not exist.
    """
    signals = SignalForwarding()
    try:
        child = subprocess.Popen(command, env={**os.environ, **(variables or {})})
    except OSError as error:
        raise ConfigInvalid(f"The command {command[0]!r} cannot be started ({error}).") from error
    signals.forward_to(child)
    return child


def exit_code(child: subprocess.Popen[Any]) -> int:
    """Wait for a child; its exit code, or 128 and the number of the signal that killed it."""
    code = child.wait()
    return code if code >= 0 else 128 - code


def become(command: Sequence[str], variables: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process by a command, which receives its signals and sets its exit code.

    Args:
        command: The program and its words.
        variables: Environment variables in addition to those of this process.

    Raises:
        ConfigInvalid: If the program does not exist.
    """
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), {**os.environ, **(variables or {})})  # noqa: S606  (the given command)
    except OSError as error:
        raise ConfigInvalid(f"The command {command[0]!r} cannot be started ({error}).") from error


def node_rank(command: Sequence[str]) -> int:
    """Rank of this node by the launcher's own flag, which the backend fills in; 0 for commands without it."""
    given = launcher_flag(command, NODE_RANK) or ""
    return int(given) if given.isdecimal() else 0


def launcher_flag(command: Sequence[str], name: str) -> str | None:
    """Value of a launcher's flag in its command; None without it. It is the first one of its name: the program's words
    follow.

    Args:
        command: The launcher and its words.
        name: The flag with underscores; torchrun takes dashes as well.
    """
    spellings = (name, "--" + name.removeprefix("--").replace("_", "-"))
    for word, following in zip(command, (*command[1:], ""), strict=True):
        flag, _, value = word.partition("=")
        if flag in spellings:
            return value or following
    return None
