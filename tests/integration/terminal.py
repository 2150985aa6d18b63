"""A terminal of a person: keys have their meaning, and closing it hangs up."""

from __future__ import annotations

import os
import pty
import select
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self


class Terminal:
    """A command in a terminal of its own. Use as a context manager, which closes the terminal."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.shown = ""
        """All that the terminal has shown."""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(folder)
                os.execvpe(command[0], list(command), {**environment, "TERM": "xterm-256color"})
            finally:
                os._exit(127)
        termios.tcsetwinsize(self._terminal, (50, 160))
        self._closed = False
        self._status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._status is None:
            os.waitpid(self.pid, 0)

    def wait_for(self, text: str, *, seconds: float = 60.0) -> None:
        """Wait until the terminal shows a text that it has not shown at the call before."""
        deadline, begin = time.monotonic() + seconds, len(self.shown)
        while text not in self.shown[begin:]:
            assert time.monotonic() < deadline, f"{text!r} is not shown:\n{self.shown[-3000:]}"
            assert self._read(0.5), f"The command has ended without {text!r}:\n{self.shown[-3000:]}"

    def pause(self, seconds: float) -> None:
        """Read on what is shown for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._read(left)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def wait(self, seconds: float = 60.0) -> int:
        """Wait until the command has ended; its exit status."""
        deadline = time.monotonic() + seconds
        while self._status is None:
            assert time.monotonic() < deadline, f"The command does not end:\n{self.shown[-3000:]}"
            self._read(0.2)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        while self._read(0.1):
            pass
        return self._status

    def close(self) -> None:
        """Close the terminal: its processes receive SIGHUP."""
        if not self._closed:
            self._closed = True
            os.close(self._terminal)

    def _read(self, seconds: float) -> bool:
        """Read what is shown within so many seconds; False once there is no process to show anything."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return self._status is None
        try:
            chunk = os.read(self._terminal, 65536)
        except OSError:  # Linux, once the other end is closed
            return False
        self.shown += chunk.decode(errors="replace")
        return bool(chunk)
