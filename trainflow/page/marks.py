"""Steps that are marked in the curves: restarts of the training, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import Restart

MAX_MARKS = 60
"""Most marks of a kind: of more, the newest are shown."""


@dataclass(frozen=True, order=True)
class Mark:
    """A step with something to say about it."""

    step: int
    kind: str
    """`restart` or `checkpoint`."""
    label: str


def marks(snapshot: RunState) -> tuple[Mark, ...]:
    """The marks of a run: restarts before checkpoints."""
    return (*_restarts(snapshot.restarts, snapshot.steps), *_checkpoints(snapshot.checkpoints))


def _restarts(restarted: Iterable[Restart], steps: Sequence[Step]) -> list[Mark]:
    """The last step before each restart; a job that failed before its first step is left out."""
    found = [(restart, _step_before(restart, steps)) for restart in restarted if restart.stage == Stage.TRAINING]
    named = [
        Mark(step, "restart", f"restart {number}, after {restart.error}")
        for number, (restart, step) in enumerate(found, start=1)
        if step is not None
    ]
    return named[-MAX_MARKS:]


def _step_before(restart: Restart, steps: Sequence[Step]) -> int | None:
    if restart.last_step is not None:
        return restart.last_step
    return _newest_until(restart.at, steps)


def _newest_until(moment: datetime, steps: Sequence[Step]) -> int | None:
    return max((step.step for step in steps if step.logged_at <= moment), default=None)


def _checkpoints(saved: Sequence[CheckpointReport]) -> list[Mark]:
    return [Mark(each.step, "checkpoint", f"checkpoint of step {each.step:,}") for each in saved[-MAX_MARKS:]]
