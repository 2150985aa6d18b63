"""Commands that our programs start, and the signals that they pass on to them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = Path(__file__).resolve().parents[2]
"""Folder of our packages: the one that `trainer.helpers.install` has made, where it holds a `__main__.py`."""

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
        self._before = {signum: signal.signal(signum, self._forward) for signum in FORWARDED}

    def forward_to(self, *children: subprocess.Popen[Any]) -> None:
        """Pass on what has come and what will come."""
        self._children = children
        for signum in self._early:
            self._send(signum)

    def stop(self) -> None:
        """Let the signals act on this process as before."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler or signal.SIG_DFL)

    def _forward(self, signum: int, _frame: FrameType | None) -> None:
        self.received = signum
        if self._children is None:
            self._early.append(signum)
        else:
            self._send(signum)

    def _send(self, signum: int) -> None:
        for child in self._children or ():
            child.send_signal(signum)


def exit_code(child: subprocess.Popen[Any]) -> int:
    """Wait for a child; its exit code, or 128 and the number of the signal that killed it."""
    code = child.wait()
    return code if code >= 0 else 128 - code


def helper(name: str) -> tuple[str, ...]:
    """Words that start one of our programs, as `python` and torchrun take them.

    Args:
        name: Module of the trainer.
    """
    return (str(PACKAGES), name) if (PACKAGES / "__main__.py").exists() else ("-m", f"trainer.{name}")


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
