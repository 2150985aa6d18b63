"""What is known of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

from trainflow.models.run_record import RunError, RunStatus
from trainflow.protocol.metrics_line import StepMetrics
from trainflow.protocol.staging_line import StagingReport
from trainflow.record.history import Visit
from trainflow.record.pods import PodView

RECENT_STEPS = 50
"""Steps from which speed and remaining time are judged: enough to smooth, few enough to follow a change."""


@dataclass(frozen=True, kw_only=True)
class RunSnapshot:
    """A run as it is now. Nothing in it changes any more."""

    run_id: str
    status: RunStatus
    observed_at: datetime
    execution: str = ""
    """Name of the run's own execution, as opposed to its watch windows'."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    states: tuple[Visit, ...] = ()
    """State visits of the run's execution and of its watch windows, in the order of entering."""
    current_state: str | None = None
    """The state of the run's own execution in which it is."""
    pods: tuple[PodView, ...] = ()
    """Every pod that was ever seen, deleted ones as they were last."""
    staging: StagingReport | None = None
    """How far staging is; None while nothing is being staged."""
    steps: tuple[StepMetrics, ...] = ()
    """Logged steps of the training job in their order, repeated ones once."""
    total_steps: int | None = None
    """Step at which the training will end, if the spec's arguments tell."""
    error: RunError | None = None
    last_lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Last lines of each failed pod's log."""
    trouble: str | None = None
    """Why something cannot be observed at the moment; the run itself may be well."""

    @property
    def seconds(self) -> float:
        """Time since the start, in seconds, or the run's whole duration."""
        if self.started_at is None:
            return 0.0
        return max(0.0, ((self.ended_at or self.observed_at) - self.started_at).total_seconds())

    @property
    def sequences_per_second(self) -> float | None:
        """Median over the latest steps."""
        recent = self.steps[-RECENT_STEPS:]
        return median(step.throughput for step in recent) if recent else None

    @property
    def seconds_left(self) -> float | None:
        """Time until the last step at the speed of the latest ones; None while that cannot be told.

        Log lines are stamped to the second, so a speed needs some seconds of them.
        """
        recent = self.steps[-RECENT_STEPS:]
        if self.total_steps is None or len(recent) < 2 or self.status is not RunStatus.RUNNING:
            return None
        elapsed = (recent[-1].logged_at - recent[0].logged_at).total_seconds()
        if elapsed < 2:
            return None
        seconds_per_step = elapsed / (recent[-1].step - recent[0].step)
        return max(0.0, (self.total_steps - recent[-1].step) * seconds_per_step)


def total_steps(spec: Mapping[str, Any], first_step: int | None) -> int | None:
    """The step at which training ends, from the workload's arguments.

    `max_steps` ends the whole training, `steps_this_run` this run's part of it, counted from its first step.
    """
    workload = spec.get("workload")
    arguments = workload.get("arguments") if isinstance(workload, Mapping) else None
    if not isinstance(arguments, Mapping):
        return None
    given = {str(name).replace("-", "_"): value for name, value in arguments.items()}
    ends = [_count(given.get("max_steps"), 0), _count(given.get("steps_this_run"), max(0, (first_step or 1) - 1))]
    return min((end for end in ends if end is not None), default=None)


def _count(value: Any, offset: int) -> int | None:
    try:
        steps = int(value)
    except (TypeError, ValueError):
        return None
    return steps + offset if steps > 0 else None
