"""Calls a function repeatedly in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kubetwin.background import Worker, surviving


class Loop:
    """Calls a function periodically, from `start` to `stop`. A call that raises is reported, and the next one comes."""

    def __init__(self, poll: Callable[[], None], *, name: str, seconds: float) -> None:
        """Prepare, without starting.

        Args:
            poll: The function to call.
            name: The name of the thread.
            seconds: The pause between two calls; the first call comes after one pause.
        """
        self._poll, self._name, self._seconds = poll, name, seconds
        self._stopping = threading.Event()
        self._thread = Worker(self._follow, name=name)

    def start(self) -> None:
        """Start the calls."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the calls; when this returns, the last call has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self) -> None:
        while not self._stopping.wait(self._seconds):
            surviving(self._poll, name=self._name)
