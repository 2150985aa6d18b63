"""How a run goes, apart from its record: a list of runs needs no more."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """How a run goes or ended, in Step Functions' words. `STARTING`: its twin is not up yet, on this machine only."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    TIMED_OUT = "TIMED_OUT"

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self not in (RunStatus.STARTING, RunStatus.RUNNING)
