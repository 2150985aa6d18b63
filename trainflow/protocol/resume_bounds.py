"""Newest checkpoint of an earlier run that may be resumed from, as the variable TRAINFLOW_RESUME_UNTIL states it.

A run whose loss became NaN has checkpoints of NaN weights behind good ones. The run that continues it is given a bound:
a step for checkpoints whose names have one, and a time for the others (docs/decisions/0097-resume-before-nan.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class ResumeBound:
    """Bound for the checkpoints of one run."""

    step: int | None = None
    """Highest step of a checkpoint."""
    time: float | None = None
    """Limit for the last change of a checkpoint without a step, in seconds since 1970; excluded itself."""
    reason: str = ""
    """Reason for the bound, as a clause."""

    def excludes(self, step: int | None, changed_at: float) -> bool:
        """Whether a checkpoint is newer than the bound.

        Args:
            step: Its step; None for a name without one.
            changed_at: Time of its last change, in seconds since 1970.
        """
        if step is not None and self.step is not None:
            return step > self.step
        return self.time is not None and changed_at >= self.time


def bounds_text(bounds: Mapping[str, ResumeBound]) -> str:
    """The value of the variable.

    Args:
        bounds: Bounds by the ids of runs.
    """
    return json.dumps({run_id: asdict(bound) for run_id, bound in bounds.items()})


def read_bounds(text: str) -> dict[str, ResumeBound]:
    """The bounds by the ids of runs.

    Raises:
        ValueError: If the text is not one of `bounds_text`.
    """
    try:
        return {run_id: ResumeBound(**fields) for run_id, fields in json.loads(text or "{}").items()}
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the bounds of runs ({error})") from None
