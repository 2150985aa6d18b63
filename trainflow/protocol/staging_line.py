"""The line that the staging program prints every few seconds, with the bytes of the source that it is through:

    STAGE 1288490188/51539607552 bytes 42 files 429916160 B/s

Bytes are those of the source as it is stored, compressed or not; the total is a question mark while it is not known.
What an earlier attempt brought counts as done. The rate is of the time since the line before, in the last line of the
whole attempt, and counts only what this attempt brought.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WAITING = "Another run is staging to "
"""Beginning of the line of a program that waits for another run to stage the same data set."""

_COUNT = r"\d{1,18}"
"""A number that a float holds; more digits are of no size and no rate."""

_LINE = re.compile(
    rf"^STAGE (?P<done>{_COUNT})/(?P<total>{_COUNT}|\?) bytes (?P<files>{_COUNT}) files "
    rf"(?P<rate>{_COUNT}(?:\.{_COUNT})?) B/s\s*$",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class StagingReport:
    """Progress of staging."""

    done_bytes: int
    total_bytes: int | None
    """None while it is unknown."""
    files: int
    """Number of complete files."""
    bytes_per_second: float

    @property
    def percent(self) -> float | None:
        """Percent of the source that is staged; 100 for an empty source, None while its size is unknown."""
        if self.total_bytes is None:
            return None
        return min(100.0, 100 * self.done_bytes / self.total_bytes) if self.total_bytes else 100.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the present rate; None while the size or the rate is unknown."""
        if self.total_bytes is None or self.bytes_per_second <= 0:
            return None
        return max(0, self.total_bytes - self.done_bytes) / self.bytes_per_second


def staging_line(report: StagingReport) -> str:
    """The line of a report; the rate is rounded to whole bytes."""
    total = "?" if report.total_bytes is None else report.total_bytes
    return f"STAGE {report.done_bytes}/{total} bytes {report.files} files {report.bytes_per_second:.0f} B/s"


def parse_staging_line(line: str) -> StagingReport | None:
    """The report in a log line, or None if it is another line."""
    found = _LINE.match(line)
    if found is None:
        return None
    return StagingReport(
        done_bytes=int(found["done"]),
        total_bytes=None if found["total"] == "?" else int(found["total"]),
        files=int(found["files"]),
        bytes_per_second=float(found["rate"]),
    )
