"""How far staging is, one line at a time. Other programs read these lines from the log: the form stays as it is.

    STAGE <done>/<total> bytes <files> files <rate> B/s

`done` and `total` are bytes of the source as it is stored, compressed or not; `total` is `?` while nobody knows it.
What an earlier attempt brought counts as done. `files` are those that are complete. `rate` is of the time since the
line before, in the last line of the whole attempt, and counts only what this attempt brought.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS_BETWEEN_LINES = 10.0
"""At most one line in that time, and one at the end."""


def line(*, done: int, total: int | None, files: int, rate: float) -> str:
    """One line of progress."""
    return f"STAGE {done}/{'?' if total is None else total} bytes {files} files {rate:.0f} B/s"


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
        """The last line: all that was needed is there, though nobody reads what follows an archive's last member."""
        rate = (self._done - self._found) / max(self._clock() - self._began, 1e-3)
        self._done = self._done if self._total is None else self._total
        self._tell(rate)

    def _tell(self, rate: float) -> None:
        self._say(line(done=self._done, total=self._total, files=self._count(), rate=rate))
