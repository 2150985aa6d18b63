"""Progress of staging, one line at a time: `trainflow.protocol.staging_line`."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainflow.protocol.staging_line import StagingReport, staging_line

SECONDS_BETWEEN_LINES = 10.0
"""Pause between two lines; the last one comes at the end."""


class Progress:
    """Counts, and says now and then how much."""

    def __init__(
        self,
        total: int | None,
        *,
        files: Callable[[], int],
        say: Callable[[str], None] = lambda text: print(text, flush=True),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            total: Bytes of the source; None if unknown.
            files: How many files are complete.
            say: Where lines go.
            clock: Seconds, from anywhere.
        """
        self._total = total
        self._count = files
        self._say = say
        self._clock = clock
        self._done = self._found = 0
        self._began = self._said = clock()
        self._done_then = 0

    def found(self, num_bytes: int) -> None:
        """Something was there already."""
        self._done += num_bytes
        self._found += num_bytes
        self._done_then += num_bytes

    def advance(self, num_bytes: int) -> None:
        """Bytes arrived."""
        self._done += num_bytes
        now = self._clock()
        if now - self._said >= SECONDS_BETWEEN_LINES:
            self._tell((self._done - self._done_then) / (now - self._said))
            self._said, self._done_then = now, self._done

    def end(self) -> None:
        """The last line: all members are there, though the bytes behind an archive's last one are never read."""
        rate = (self._done - self._found) / max(self._clock() - self._began, 1e-3)
        self._done = self._done if self._total is None else self._total
        self._tell(rate)

    def _tell(self, rate: float) -> None:
        report = StagingReport(
            done_bytes=self._done, total_bytes=self._total, files=self._count(), bytes_per_second=rate
        )
        self._say(staging_line(report))
