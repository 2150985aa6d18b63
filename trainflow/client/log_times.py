"""Times of the lines of a stored log.

People read `<pod>.log`, so its lines bear no stamps. `<pod>.times` beside it has a line for each second with log lines:
the second in UTC, and the offset of its first line in the log.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TextIO

SECOND = "%Y-%m-%dT%H:%M:%SZ"


def times_file(log: Path) -> Path:
    """The file with the times of a log's lines."""
    return log.with_suffix(".times")


class LogTimes:
    """Writes the times of a log while the log is written."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._newest: datetime | None = None

    def add(self, logged_at: datetime, log: BinaryIO) -> None:
        """Tell the time of the line that is written to the log next."""
        second = logged_at.replace(microsecond=0)
        if self._newest is None or second > self._newest:
            self._newest = second
            self._file.write(f"{second.astimezone(UTC).strftime(SECOND)} {log.tell()}\n")
            self._file.flush()


def offset_since(log: Path, since: datetime) -> int | None:
    """Offset of a log's first line of the second `since` or a later one; None if its times are not known."""
    wanted = since.astimezone(UTC).strftime(SECOND)
    try:
        with times_file(log).open(encoding="utf-8") as times:
            later = (int(offset) for second, _, offset in (line.partition(" ") for line in times) if second >= wanted)
            return next(later, log.stat().st_size)
    except (OSError, ValueError):
        return None
