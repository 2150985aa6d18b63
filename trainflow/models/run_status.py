"""How a run goes, apart from its record: a list of runs needs no more."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """How a run ended, in Step Functions' words."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    TIMED_OUT = "TIMED_OUT"
