"""Unread lines of a log, each exactly once, even where a poll ends in the middle of a second.

A log can be requested from a given second on, no finer, and one second may have thousands of lines. So a position is a
second and the number of lines that have been read since that second. The log only grows at its end, hence these are the
first lines of a log that is read from that second on; unless it has been replaced, by rotation or by a restart of its
container. In that case its first line has changed, and every line is new.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import LogPosition, MetricsCursor

SECOND = timedelta(seconds=1)

OVERLAP = SECOND
"""Time before the newest line that is read again: the lines of a container's two streams get their time stamps
separately and may be stored out of order."""


@dataclass
class _Second:
    """The lines of one second that have been read."""

    order: int
    checksum: int
    """Checksum of the first line."""
    num_lines: int = 1


# Decision 17: Kubernetes reads a log from a second on, so the position is a second and a number of lines.
class UnreadLines:
    """Iterator over the lines behind a position. It knows the position behind the line that it returned last.

    Args:
        lines: The log of `pod` from the position's second on; all of it without a position.
        position: End of the part that has been read before; None for a new log.
        pod: Name of the pod.

    Attributes:
        exhausted: Whether the end of the log has been reached.
        replaced: Whether the log has been replaced since the position was taken.
        is_new: Whether nothing of the log has been read before.
    """

    def __init__(self, lines: Iterable[LogLine], position: LogPosition | None, *, pod: str) -> None:
        self._lines = iter(lines)
        self._before = position
        self._pod = pod
        self._seconds: dict[datetime, _Second] = {}
        self._newest = _Second(0, 0)
        self._newest_starts: datetime | None = None
        self._returned_one = False
        self.exhausted = False
        self.replaced = False
        self.is_new = position is None

    def __iter__(self) -> Iterator[LogLine]:
        to_skip = self._before.num_lines if self._before else 0
        for number, line in enumerate(self._lines):
            if number == 0 and self._before is not None and _checksum(line) != self._before.first_line:
                self.replaced, to_skip = True, 0
            self._count(number, line)
            if number >= to_skip:
                self._returned_one = True
                yield line
        self.exhausted = True

    @property
    def position(self) -> LogPosition | None:
        """Position behind the last line that was returned; the previous position if none was."""
        if not self._returned_one or self._newest_starts is None:
            return self._before
        first = min(self._seconds.values(), key=lambda second: second.order)
        return LogPosition(
            pod=self._pod,
            since=self._newest_starts - OVERLAP,
            num_lines=sum(second.num_lines for second in self._seconds.values()),
            first_line=first.checksum,
        )

    def _count(self, number: int, line: LogLine) -> None:
        starts = self._newest_starts
        if starts is not None and starts <= line.logged_at < starts + SECOND:
            self._newest.num_lines += 1
            return
        second = line.logged_at.replace(microsecond=0)
        if starts is not None and second < starts - OVERLAP:
            return  # will not be read again
        if found := self._seconds.get(second):
            found.num_lines += 1
            return
        self._seconds[second] = _Second(number, _checksum(line))
        if starts is None or second > starts:
            self._newest, self._newest_starts = self._seconds[second], second
            for old in [old for old in self._seconds if old < second - OVERLAP]:
                del self._seconds[old]


def position_in(cursor: MetricsCursor, pod: str) -> LogPosition | None:
    """Position in a pod's log after the last line that was read; None for a pod that has not been read before."""
    return cursor.log if cursor.log and cursor.log.pod == pod else None


def _checksum(line: LogLine) -> int:
    return zlib.crc32(f"{line.logged_at.isoformat()} {line.text}".encode(errors="replace"))
