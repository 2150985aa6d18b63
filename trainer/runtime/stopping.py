"""SIGTERM while training: the loop finishes the step, saves it, and ends."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """Records that SIGTERM was received."""

    def __init__(self) -> None:
        self.received = False

    @classmethod
    def listening(cls) -> StopRequest:
        """Start to record SIGTERM, which no longer interrupts from here on; the loop reads the record between steps."""
        request = cls()
        signal.signal(signal.SIGTERM, request._remember)
        return request

    def _remember(self, _signum: int, _frame: FrameType | None) -> None:
        self.received = True
