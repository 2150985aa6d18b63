"""Formats durations, numbers and names of states for people, in the terminal and in the report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Protocol

from trainflow.protocol.metric_aliases import SEQUENCES
from trainflow.workflow.owner import UNKNOWN, Owner

MINUTE, HOUR, DAY = 60, 3600, 86400
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


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
    """A number with separated thousands; a dash for None, words for values that are not finite."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    return f"{value:,.{digits}f}"


DATA = ("sequences", "tokens", "samples", "examples", "images", "imgs", "img", "sentences", "frames", "videos", "words")
"""Data that programs count a second."""

ITEMS = (*DATA, "steps", "batches", "iterations", "iters", "it")
"""Units that programs count per second, the most informative first: steps, whose size is unknown, come last."""

_SPEED = re.compile(
    r"(?:.*/)?([^\W\d_][a-z]*)(?:_per_sec(?:ond)?|/s(?:ec)?)(?:(?:_per|/)_?(device|gpu|chip|core|node))?"
)
_TIME = re.compile(r"(seconds|ms)_per_([^\W\d_][a-z]*)")
_TIME_UNITS = {"seconds": "s", "ms": "ms"}


def speed_of(sequences_per_second: float | None, metrics: Mapping[str, float], counted: str = SEQUENCES) -> str:
    """The speed of a training in its program's own unit; empty if unknown.

    Args:
        sequences_per_second: Over all ranks.
        metrics: Further figures by the program's own names, such as `images_per_second` or
            `tokens_per_second_per_device`.
        counted: Unit of `sequences_per_second`: `sequences` or `samples`.
    """
    if sequences_per_second is not None:
        return f"{rate(sequences_per_second)} {counted}/s"
    said = [(found, value) for name, value in metrics.items() if (found := _SPEED.fullmatch(name.lower()))]
    if not said:
        return _time_of_an_item(metrics)
    # The sum over the devices before the share of one.
    found, value = min(said, key=lambda each: (each[0][2] is not None, _order(each[0][1])))
    return f"{rate(value)} {found[1]}/s{f' per {found[2]}' if found[2] else ''}"


def _order(item: str) -> int:
    """Place of a unit among those that a program prints: data, then words that are not known, then steps."""
    if item not in ITEMS:
        return len(DATA)
    return ITEMS.index(item) + (item not in DATA)


def _time_of_an_item(metrics: Mapping[str, float]) -> str:
    """`1.5 s/it` of a program that prints the time of a step in place of a speed; empty without one."""
    found = next(((each, value) for name, value in metrics.items() if (each := _TIME.fullmatch(name.lower()))), None)
    if found is None:
        return ""
    return f"{significant(found[1])} {_TIME_UNITS[found[0][1]]}/{found[0][2]}"


PER_NODE, PER_PROCESS = " per node", " per process"
"""Ends of the names of speeds that are those of a part of the training."""

_PARTS = {None: "", "node": PER_NODE, "device": PER_PROCESS, "gpu": PER_PROCESS, "core": PER_PROCESS}


def data_of_speed(name: str) -> str | None:
    """Unit that a figure of this name counts per second: `tokens`, or `tokens per process`; None for other figures.

    A device is that of one process, as torchrun starts them; how many chips a process has is not known.
    """
    found = _SPEED.fullmatch(name.lower())
    return f"{found[1]}{_PARTS[found[2]]}" if found and found[1] in DATA and found[2] in _PARTS else None


def rate(value: float | None) -> str:
    """Sequences or tokens per second, with the digits that mean something."""
    return number(value, 0 if value is not None and value >= 1000 else 1)


def significant(value: float | None) -> str:
    """A loss or another figure of unknown size, with four significant digits: `12,800`, `0.3125`, `1.2e-05`.

    A dash for None, words for values that are not finite.
    """
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def size(num_bytes: float | None) -> str:
    """A number of bytes in the largest unit that fits once: `7 B`, `1.2 GiB`; a dash for an unknown one."""
    if num_bytes is None:
        return "–"
    exponent = max(step for step in range(len(BYTE_UNITS)) if num_bytes >= 1024**step or step == 0)
    return f"{number(num_bytes / 1024**exponent, 1 if exponent else 0)} {BYTE_UNITS[exponent]}"


def usd(amount: float | None) -> str:
    """An estimated amount: `12.34 USD`, `0.04 USD`, `less than 0.01 USD`."""
    if amount is None:
        return "–"
    return "less than 0.01 USD" if 0 < amount < 0.01 else f"{amount:,.2f} USD"


def estimated_cost(amount: float) -> str:
    """`about 12.34 USD at on-demand prices`, `less than 0.01 USD at on-demand prices`."""
    about = "" if 0 < amount < 0.01 else "about "
    return f"{about}{usd(amount)} at on-demand prices"


def count(number_of: int, noun: str) -> str:
    """`1 pod`, `3 pods`, `25,000 events`, `2 processes`."""
    ending = "" if number_of == 1 else "es" if noun.endswith("s") else "s"
    return f"{number_of:,} {noun}{ending}"


class _Owned(Protocol):
    """A run with an owner: its state, or its record."""

    @property
    def owner(self) -> Owner: ...
    @property
    def team(self) -> str | None: ...
    @property
    def project(self) -> str | None: ...


def owner_facts(run: _Owned) -> list[tuple[str, str]]:
    """Owner, team and project of a run as label and value; unknown ones are left out."""
    owner = None if run.owner == UNKNOWN else run.owner.in_words
    facts = (("Owner", owner), ("Team", run.team), ("Project", run.project))
    return [(label, value) for label, value in facts if value]
