"""The parts of a recovery: from the kill to the first new step, by what happened in between."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.recovery.program import EVENTS

OWN_PARTS = ("import", "load")
"""Parts that the program takes by itself, at every start."""


LOAD = "processes_that_wanted_a_core"
"""Property of the machine in the results: load averages of five minutes."""

TOTAL, LONGEST = "total", "longest"

BEYOND = "beyond the program"
"""All other parts."""


class NotRecovered(Exception):
    """The program was not started again, or made no new step."""


@dataclass
class Trials:
    """Recoveries of one class."""

    recovered: list[dict[str, float]] = field(default_factory=list)
    not_recovered: int = 0
    weights: set[str] = field(default_factory=set)
    """Weights of the trials that came to their last step."""

    def counts(self) -> dict[str, int]:
        """Number of trials that recovered and that did not."""
        return {"recovered": len(self.recovered), "not recovered": self.not_recovered}


def weight(folder: Path) -> str:
    """The checkpoint in a run's folder, which is the step and the weight in hexadecimal digits."""
    return (folder / "checkpoint.json").read_text(encoding="utf-8")


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The lines that rank 0 has written so far; one that is being written is left out."""
    file = folder / EVENTS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def last_step(events: Sequence[Mapping[str, Any]], *, until: float) -> int:
    """The newest step before a moment; 0 before the first."""
    return max((line["step"] for line in events if line["event"] == "step" and line["at"] <= until), default=0)


def recovery_parts(
    events: Sequence[Mapping[str, Any]], killed_at: float, before: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Seconds of each part, by the lines of rank 0.

    Args:
        events: The lines.
        killed_at: Time of the kill.
        before: Moments between the kill and the program's start, by the part that ends then, in their order.

    Raises:
        NotRecovered: If the program has not made a new step.
    """
    again = next((each["at"] for each in events if each["event"] == "began" and each["at"] > killed_at), math.inf)
    reached = last_step(events, until=again)  # a kill takes effect a little later
    new = next((each for each in events if each["at"] > again and each.get("step", 0) > reached), None)
    if new is None:
        raise NotRecovered
    start = {
        part: max(each["at"] for each in events if each["event"] == event and killed_at < each["at"] < new["at"])
        for part, event in (("start", "began"), ("import", "imported"), ("load", "loaded"))
    }
    moments = {"kill": killed_at, **(before or {}), **start, "first step": new["at"]}
    parts = {
        part: round(later[1] - earlier[1], 2) for earlier, later in pairwise(moments.items()) for part in later[:1]
    }
    total = new["at"] - killed_at
    return {
        **parts,
        TOTAL: round(total, 2),
        BEYOND: round(total - sum(map(parts.__getitem__, OWN_PARTS)), 2),
    }


def medians(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each part, and the longest trial."""
    if not trials:
        return {}
    found = {part: round(median(trial[part] for trial in trials), 2) for part in trials[0]}
    return {**found, LONGEST: max(trial[TOTAL] for trial in trials)}
