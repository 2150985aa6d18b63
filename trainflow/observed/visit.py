"""A state visit of an execution."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One stay of an execution in one state; a loop makes several."""

    name: str
    kind: str
    """Type of the state: Task, Choice, Wait, Pass, Parallel, Map, Succeed, Fail."""
    entered_at: datetime
    exited_at: datetime | None = None
    attempts: int = 1
    """Tries of the state's task, the first one counted."""
    execution: str = ""
    """Name of the execution."""

    def seconds(self, now: datetime) -> float:
        """Length of the stay, until `now` if it goes on."""
        return max(0.0, ((self.exited_at or now) - self.entered_at).total_seconds())
