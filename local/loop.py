"""Something that is looked at again and again, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Loop:
    """Calls a function every so often, from `start` to `stop`."""

    def __init__(self, look: Callable[[], None], *, name: str, seconds: float) -> None:
        """Prepare, without starting.

        Args:
            look: What to call.
            name: Of the thread.
            seconds: Between two calls; the first comes after one such pause.
        """
        self._look, self._seconds = look, seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)

    def start(self) -> None:
        """Call from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Call no more: when this returns, the last call has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._look()
