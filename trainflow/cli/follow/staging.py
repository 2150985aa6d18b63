"""Progress of staging in a line: `staging 1.2 of 48.0 GiB, 410.0 MiB/s, 1 min 57 s left`."""

from __future__ import annotations

from trainflow.protocol.staging_line import StagingReport
from trainflow.record.wording import duration, number

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def staging_line(report: StagingReport) -> str:
    """Staged part of the data set's source, its speed, and the remaining time."""
    exponent = _exponent(report.total_bytes or report.done_bytes)
    done = _amount(report.done_bytes, exponent)
    total = f" of {_amount(report.total_bytes, exponent)}" if report.total_bytes is not None else ""
    speed = _exponent(report.bytes_per_second)
    parts = [
        f"staging {done}{total} {UNITS[exponent]}",
        f"{_amount(report.bytes_per_second, speed)} {UNITS[speed]}/s",
    ]
    if report.seconds_left:
        parts.append(f"{duration(report.seconds_left)} left")
    return ", ".join(parts)


def _exponent(count: float) -> int:
    """Index of the largest unit that the count has at least one of."""
    return max(step for step in range(len(UNITS)) if count >= 1024**step or step == 0)


def _amount(count: float, exponent: int) -> str:
    return number(count / 1024**exponent, 1 if exponent else 0)
