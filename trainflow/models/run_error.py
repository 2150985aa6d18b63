"""Reason of a run's failure, in a module apart from the record: the status of an ended run needs only this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class RunError:
    """The error that ended a run. A dataclass, since the first output of a command waits for no pydantic model."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    name: str
    """Class name of the error, as in `trainflow/errors.py` and in the state machines."""
    message: str
    what_to_do: str
