"""What is known of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

from trainflow.models.run_record import Cost, NodesBusy, Restart, RunError, RunStatus
from trainflow.observed.step import Step
from trainflow.protocol.checkpoint_line import CheckpointReport
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
    arn: str = ""
    """ARN of the run's own execution."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The run spec; empty while it is not known."""
    instance_type: str | None = None
    """Type of the nodes that were requested last; None before the request."""
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
    steps: tuple[Step, ...] = ()
    """Logged steps of the training job in their order, repeated ones once."""
    total_steps: int | None = None
    """Step at which the training will end, if the spec's arguments tell."""
    checkpoints: tuple[CheckpointReport, ...] = ()
    """The newest checkpoints that the program has reported, in the order of writing."""
    restarts: tuple[Restart, ...] = ()
    """Jobs that failed and were submitted again."""
    avoided_nodes: tuple[str, ...] = ()
    test_is_refuted: bool = False
    """Whether the run goes on without the test of its nodes, because it fails wherever it runs."""
    """Nodes that the run does not use because its jobs failed there."""
    cost: Cost | None = None
    """Estimate of what the run's nodes have cost so far; None while it has held none."""
    nodes_busy: NodesBusy | None = None
    """How busy the nodes of the training were, of a run that has ended."""
    error: RunError | None = None
    last_lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Last lines of each failed pod's log."""
    log_tail: tuple[str, Sequence[str]] | None = None
    """Name of the pod that tells how far the run is, and the newest lines of its log; None while no such pod runs."""
    warnings: tuple[str, ...] = ()
    """What the log does not show although the spec says so."""
    trouble: str | None = None
    """Why something cannot be observed at the moment; the run itself may be well."""

    @property
    def seconds(self) -> float:
        """Time since the start, in seconds, or the run's whole duration."""
        if self.started_at is None:
            return 0.0
        return max(0.0, ((self.ended_at or self.observed_at) - self.started_at).total_seconds())

    @property
    def checkpoint_age_seconds(self) -> float | None:
        """Time since the newest checkpoint, until the end of a run that has ended; None before the first."""
        if not self.checkpoints:
            return None
        return max(0.0, ((self.ended_at or self.observed_at) - self.checkpoints[-1].saved_at).total_seconds())

    @property
    def sequences_per_second(self) -> float | None:
        """Median over the latest steps; None where the program does not say it."""
        recent = [step.throughput for step in self.steps[-RECENT_STEPS:] if step.throughput is not None]
        return median(recent) if recent else None

    @property
    def seconds_left(self) -> float | None:
        """Time until the last step at the speed of the latest ones; None while that cannot be told.

        Log lines are stamped to the second, so a speed needs some seconds of them.
        """
        recent = self.steps[-RECENT_STEPS:]
        if self.total_steps is None or len(recent) < 2 or self.status is not RunStatus.RUNNING:
            return None
        elapsed = (recent[-1].logged_at - recent[0].logged_at).total_seconds()
        if elapsed < 2 or recent[-1].step == recent[0].step:
            return None
        seconds_per_step = elapsed / (recent[-1].step - recent[0].step)
        return max(0.0, (self.total_steps - recent[-1].step) * seconds_per_step)
