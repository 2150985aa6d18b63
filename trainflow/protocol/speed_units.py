"""Units of speeds as programs print them: `samples/s`, `img/sec`, `it/s`, `s/it`, `ms/batch`, `tokens/s/gpu`."""

from __future__ import annotations

import re

SECONDS = "seconds_per_"
"""Begins the name of a time for one item."""

PER_SECOND = "_per_second"
"""Ends the name of a number of items."""

_PER_SECOND = re.compile(r"(?P<item>[^\W\d_][\w-]{0,30})/(?:s|sec|second)(?:/(?P<part>device|gpu|chip|core|node))?")
_PER_ITEM = re.compile(r"(?P<time>s|sec|secs|seconds|ms)/(?P<item>[^\W\d_][\w-]{0,30})")
_NO_ITEMS = re.compile(
    r"(?:[kmgt]i?)?b(?:its?|ytes?|ps)?|[kmgtp]?flops?|m?hz|steps_left|s|sec|m|h|min|ms", re.IGNORECASE
)
"""Words for sizes, operations and times, which a training does not count."""


def speed_name(unit: str) -> str | None:
    """The name of a figure in this unit: `samples_per_second`, `seconds_per_it`; None for other units.

    Args:
        unit: Such as `samples/s`, in any case.
    """
    lower = unit.lower().rstrip(".,;")
    if (found := _PER_SECOND.fullmatch(lower)) and not _NO_ITEMS.fullmatch(found["item"]):
        part = f"_per_{found['part']}" if found["part"] else ""
        return f"{found['item']}{PER_SECOND}{part}"
    if (found := _PER_ITEM.fullmatch(lower)) and not _NO_ITEMS.fullmatch(found["item"]):
        return f"{'ms_per_' if found['time'] == 'ms' else SECONDS}{found['item']}"
    return None


def item_behind(value: str, line: str) -> str | None:
    """The item whose number per second stands in a line: `samples` of `15125.5 samples/s`; None without one."""
    found = re.search(rf"(?<![\w.]){re.escape(value)}\s?([^\W\d][\w/.-]*)", line)
    name = speed_name(found[1]) if found else None
    return name.removesuffix(PER_SECOND) if name and name.endswith(PER_SECOND) else None
