"""The line that a supervisor prints when its gang starts the program again in the same pods:

    {"trainflow_restarted": {"attempt": 1, "round": 1, "node": 1, "reason": "signal 9 (SIGKILL)"}}

Every node prints it, between the end of the program and the next start. Lines before it are evidence about an earlier
start (docs/decisions/0099-restart-in-the-pods.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

RESTARTED = "trainflow_restarted"
"""Key of the JSON object in the line."""

MAX_REASON = 200
"""Characters of the reason that are kept."""

_BEGIN = f'{{"{RESTARTED}":'


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """A restart of a gang's program in its pods."""

    attempt: int
    """Attempt of the job that goes on."""
    round: int
    """Number of the restart in this job, from 1."""
    node: int
    """Number of the node whose rank ended."""
    reason: str
    """Signal that ended the rank."""

    @property
    def place(self) -> tuple[int, int]:
        """Order among the restarts of a run."""
        return self.attempt, self.round


def restarted_line(restarted: Restarted) -> str:
    """The line about a restart."""
    return json.dumps({RESTARTED: asdict(restarted)})


def parse_restarted_line(line: str) -> Restarted | None:
    """The restart in a log line, or None if it is another line."""
    begin = line.find(_BEGIN)
    if begin < 0:
        return None
    try:
        said = json.loads(line[begin:])[RESTARTED]
        numbers = {name: said[name] for name in ("attempt", "round", "node")}
        reason = said["reason"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(reason, str) or not all(type(each) is int and each >= 0 for each in numbers.values()):
        return None
    return Restarted(**numbers, reason=reason[:MAX_REASON])


def since_restart(lines: Sequence[str]) -> Sequence[str]:
    """The lines behind the newest restart; all of them without one."""
    places = (place for place in range(len(lines) - 1, -1, -1) if parse_restarted_line(lines[place]) is not None)
    return lines[next(places, -1) + 1 :]
