"""Threads of the command and of functions whose exception reaches somebody.

A plain `threading.Thread` prints the exception that ends it, and whoever waits for its work waits on. `trainer` and
`kubetwin` have modules of their own for their threads: neither may import this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


# Decision 80: an unexpected error in a thread is reported, and does not only stop its work.
class Worker(threading.Thread):
    """A daemon thread that hands the exception of its function to its owner."""

    def __init__(self, work: Callable[[], object], *, name: str, on_error: Callable[[BaseException], object]) -> None:
        """
        Args:
            work: The function to run.
            name: Name of the thread.
            on_error: Called with the exception, from the thread.
        """
        super().__init__(name=name, daemon=True)
        self._work, self._on_error = work, on_error

    def run(self) -> None:
        """Run the function."""
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (handed to the owner)
            self._on_error(error)


def described(error: BaseException) -> str:
    """An unexpected exception in words, for a sentence that a person reads."""
    return f"unexpected {type(error).__name__}: {error}"
