"""The measured part of docs/recovery.md.

python -m benchmarks.recovery.page    # `make schema` runs it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.recovery.parts import BEYOND, LOAD, LONGEST, TOTAL

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results" / "recovery.json"
PAGE = REPOSITORY / "docs" / "recovery.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

PARTS = ("detection", "decision", "placement", "start", "import", "load", "first step")
COLUMNS = ("what ends", "recovered", *PARTS, "all", "longest", "all but import and load", "goal")


def measured(result: Mapping[str, Any]) -> str:
    """The machine and the table of a result of the benchmark."""
    machine = result["machine"]
    wanted = ", ".join(f"{load:.0f}" for load in machine[LOAD].values())
    return (
        f"Medians in seconds. The machine has {machine['cores']} cores; {wanted} processes wanted them before, "
        f"between and after the two kinds of trials.\n\n{table(result)}"
    )


def table(result: Mapping[str, Any]) -> str:
    """A row for each class."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *_rows(result)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rows(result: Mapping[str, Any]) -> Iterator[list[str]]:
    details = result["details"]
    for name, seconds in result["seconds"].items():
        counts, goal = details["trials"][name], details["goals"].get(name)
        of_all = f"{counts['recovered']} of {sum(counts.values())}"
        shown = (*PARTS, TOTAL, LONGEST, BEYOND)
        cells = [f"{seconds[part]:.1f}" if part in seconds else "–" for part in shown]
        yield [
            name,
            of_all,
            *cells,
            f"{goal['at most']:g}, {'reached' if goal['reached'] else 'missed'}" if goal else "",
        ]


def current() -> str:
    """The page with the table of the stored results."""
    text = measured(json.loads(RESULTS.read_text(encoding="utf-8")))
    page = PAGE.read_text(encoding="utf-8")
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(current(), encoding="utf-8")
