"""Formats durations, numbers and names of states for people, in the terminal and in the report."""

from __future__ import annotations

import math

MINUTE, HOUR, DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """A length of time in at most two units: `0.4 s`, `42 s`, `1 min 05 s`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def clock(seconds: float) -> str:
    """A length of time as a clock shows it: `0:42`, `1:02:03`."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // HOUR, whole % HOUR // MINUTE, whole % MINUTE
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def number(value: float | None, digits: int = 2) -> str:
    """A number with thousands set apart; a dash for none, words for what is no number."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    return f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """Sequences per second, with the digits that mean something."""
    return number(value, 0 if value is not None and value >= 1000 else 1)


def count(number_of: int, noun: str) -> str:
    """`1 pod`, `3 pods`, `25,000 events`."""
    return f"{number_of:,} {noun}" if number_of == 1 else f"{number_of:,} {noun}s"
