"""Threads, timers and tasks whose unexpected exceptions somebody learns of.

A plain thread prints the exception that ends it and leaves its work undone, a future that nobody reads drops it, and
a loop stops at the first bad entry. Here every exception is reported in the log, and where work depends on the thread,
its owner is called.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import Any

_LOG = logging.getLogger(__name__)

_COUNTED_AT = (10, 100, 1_000, 10_000)
"""Numbers of occurrences that report a known exception again."""

OnError = Callable[[BaseException], None]


class _Reports:
    """Reports each kind of exception once with its traceback, and then how often it has come."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._lock = threading.Lock()

    def add(self, work: str, error: BaseException) -> None:
        kind = (work, type(error).__name__, _place(error))
        with self._lock:
            self._seen[kind] += 1
            count = self._seen[kind]
        if count == 1:
            _LOG.error("unexpected error in %s: %s: %s", work, type(error).__name__, error, exc_info=error)
        elif count in _COUNTED_AT:
            _LOG.error("unexpected error in %s, %d times by now: %s: %s", work, count, type(error).__name__, error)


_REPORTS = _Reports()


def report(work: str, error: BaseException) -> None:
    """Report an unexpected exception in the log: with its traceback the first time, then at ten, a hundred … times.

    Args:
        work: The work that met it, as a noun.
        error: The exception. Two of one class from one line are of one kind.
    """
    _REPORTS.add(work, error)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class Worker(threading.Thread):
    """A daemon thread that reports the exception of its function."""

    def __init__(
        self, work: Callable[..., object], *arguments: Any, name: str, on_error: OnError | None = None
    ) -> None:
        """
        Args:
            work: The function to run.
            arguments: Its arguments.
            name: Name of the thread.
            on_error: Called with the exception, after the report.
        """
        super().__init__(name=name, daemon=True)
        self._work, self._arguments, self._on_error = work, arguments, on_error

    def run(self) -> None:
        """Run the function."""
        try:
            self._work(*self._arguments)
        except BaseException as error:  # noqa: BLE001 (reported, and handed to the owner)
            report(f"thread {self.name}", error)
            if self._on_error is not None:
                surviving(self._on_error, error, name=f"the end of thread {self.name}")


def later(seconds: float, work: Callable[..., object], *arguments: Any, name: str) -> threading.Timer:
    """A timer, not started, that calls a function from a daemon thread and reports its exception.

    Args:
        seconds: Time after its start.
        work: The function to call.
        arguments: Its arguments.
        name: The work in a report.
    """
    timer = threading.Timer(seconds, surviving, (work, *arguments), {"name": name})
    timer.name, timer.daemon = name, True
    return timer


def submit(pool: Executor, work: Callable[..., object], *arguments: Any, name: str) -> Future[Any]:
    """Run a function in a pool and report its exception, whether or not anybody reads the future.

    Args:
        pool: The pool.
        work: The function to run.
        arguments: Its arguments.
        name: The work in a report.
    """
    future = pool.submit(work, *arguments)
    future.add_done_callback(lambda done: _report_failed(name, done))
    return future


def surviving(work: Callable[..., object], *arguments: Any, name: str) -> bool:
    """Call a function, and report its exception instead of raising it: for one turn of a loop, or one entry of a list.

    Args:
        work: The function to call.
        arguments: Its arguments.
        name: The work in a report.

    Returns:
        Whether it has ended without an exception.
    """
    try:
        work(*arguments)
    except Exception as error:  # noqa: BLE001 (reported; the next turn or entry must not suffer)
        report(name, error)
        return False
    return True


def _report_failed(name: str, done: Future[Any]) -> None:
    if done.cancelled():
        return
    error = done.exception()
    if error is not None and not isinstance(error, CancelledError):
        report(name, error)
