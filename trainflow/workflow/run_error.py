"""Reason of a run's failure, in a module apart from the record: the status of an ended run needs only this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class RunError:
    """The error that ended a run. A dataclass, since the first output of a command waits for no pydantic model."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    name: str
    """Name of the error, as in `trainflow/failures/errors.toml` and in the state machines."""
    message: str
    what_to_do: str
    rule: str = ""
    """Rule that decided about a failed job (`trainflow/failures/table.toml`); empty for other errors and in records of
    earlier versions."""
    line: str = ""
    """Line of the log that decided; empty if another evidence did."""
    pod: str | None = None
    """The pod that failed first; None if no pod did."""
    node: str | None = None
    """The node of that pod; None if the job may be restarted and the failure says nothing about the node."""
    checkpoint: str | None = None
    """Path of the checkpoint that the program may have failed to open; None if it had passed its first step, or began
    without one."""
    excerpt: tuple[str, ...] = ()
    """The lines of the log around the one that decided, without those of libraries and launchers; the last lines if
    none decided."""
    place: str = ""
    """File and line of the program's own innermost call there, such as `fit.py:36`; empty if it is not known."""
    rank: int | None = None
    """The rank that printed these lines; None if the log does not say so."""

    def __post_init__(self) -> None:
        """A document in JSON has a list."""
        object.__setattr__(self, "excerpt", tuple(self.excerpt))

    @property
    def source(self) -> str:
        """Origin of the excerpt, for the line above it: rank, pod, and place in the program."""
        rank = "" if self.rank is None else f"rank {self.rank}"
        return ", ".join(filter(None, [rank, f"pod {self.pod}" if self.pod else "", self.place]))
