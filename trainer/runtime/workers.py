"""Threads whose exception is kept for the thread that waits for them.

A plain `threading.Thread` prints the exception that ends it, and the program goes on as if the work had been done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker(threading.Thread):
    """A daemon thread that keeps the exception of its function."""

    def __init__(self, work: Callable[[], None], *, name: str) -> None:
        """
        Args:
            work: The function to run.
            name: Name of the thread.
        """
        super().__init__(name=name, daemon=True)
        self._work = work
        self.error: BaseException | None = None
        """The exception that ended the function, if there was one."""

    def run(self) -> None:
        """Run the function."""
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (kept for the thread that waits)
            self.error = error

    def require_no_error(self) -> None:
        """Raise the exception that ended the function, if there was one."""
        if self.error is not None:
            raise self.error
