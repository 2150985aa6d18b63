"""A restart of a run, in a module apart from the record: the status of an ended run needs only this."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A job that failed and was submitted again, or whose program was started again in its pods."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    stage: str
    attempt: int
    """The attempt that failed, counted over all stages; 1 is the first."""
    at: datetime
    """Time when the workflow saw the failure."""
    error: str
    """Class name of the error."""
    message: str
    rule: str = ""
    """As in the run's error."""
    node: str | None = None
    """The node of the pod that failed first; None if no node failed."""
    checkpoint: str | None = None
    """The checkpoint that the job may have failed to open, as in the run's error."""
    last_step: int | None = None
    """Newest step that was logged before."""
    next_step: int | None = None
    """First step that was logged after it; None if it is not known, or higher than the newest one before."""
    in_place: bool = False
    """Whether only the program was started again, in the same pods."""
