"""The request to stop a command, and the time limit of the stop."""

from __future__ import annotations

import faulthandler
import os
import signal

STOP_SECONDS = 30.0
"""Time limit of a stop. Pods, requests and threads have shorter limits of their own."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """SIGINT, SIGTERM or a call of `set`, for the main thread to wait for. A second signal ends the process at once.

    The main thread reads from a pipe. It does not wait for a `threading.Event` that a signal handler sets, because any
    thread may take a signal from the kernel, Python runs handlers in the main thread only, and a main thread that waits
    for a lock does not wake up for a signal that another thread has taken. The thread that takes it writes to the pipe.
    """

    def __init__(self, *, stop_seconds: float = STOP_SECONDS) -> None:
        """
        Args:
            stop_seconds: Time between the request and the end of the process, at most.
        """
        self._stop_seconds = stop_seconds
        self._requested, self._request = os.pipe()
        os.set_blocking(self._request, False)
        signal.set_wakeup_fd(self._request)
        for number in _SIGNALS:
            signal.signal(number, lambda _number, _frame: _let_signals_end_the_process())

    def set(self) -> None:
        """Request the stop. Any thread may call it."""
        os.write(self._request, b"\0")

    def wait(self) -> None:
        """Wait for the request. A process that lasts `stop_seconds` longer prints its stacks and exits with 1."""
        os.read(self._requested, 1)
        _let_signals_end_the_process()
        faulthandler.dump_traceback_later(self._stop_seconds, exit=True)


def _let_signals_end_the_process() -> None:
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
