"""The time from that a log is printed, as a person types it."""

# `logs` of an ended run reads a file: it waits for no client of a cluster.

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_since(text: str, now: datetime) -> datetime:
    """`90s`, `10m`, `2h` or `1d` before now, or a time in ISO 8601 (UTC where it names no zone).

    Raises:
        ValueError: If it is neither.
    """
    try:
        if found := re.fullmatch(r"([0-9]+)([smhd])", text):
            return now - timedelta(seconds=int(found[1]) * UNITS[found[2]])
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(f"must be a duration such as 10m or a time such as 2026-11-22T08:00, got {text!r}") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
