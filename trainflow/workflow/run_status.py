"""Status of a run, in a module apart from its record: a list of runs needs only this."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """Status of a run, in Step Functions' words. `STARTING`: its twin is not up yet, on this machine only."""

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
