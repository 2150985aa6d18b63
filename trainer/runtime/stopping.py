"""SIGTERM while training: finish the step, write it down, then go."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """Remembers that SIGTERM came."""

    def __init__(self) -> None:
        self.received = False

    @classmethod
    def listening(cls) -> StopRequest:
        """From here on SIGTERM no longer interrupts: the loop asks when it suits it."""
        request = cls()
        signal.signal(signal.SIGTERM, request._remember)
        return request

    def _remember(self, _signum: int, _frame: FrameType | None) -> None:
        self.received = True
