"""Whether a run can be continued, by its status: asked before anything is started or imported for it."""

from __future__ import annotations

from trainflow.errors import TrainflowError
from trainflow.workflow.run_status import RunStatus


class CannotContinue(TrainflowError):
    """An earlier run is not one that can be continued."""

    input_at_fault = True


def require_continuable(run_id: str, status: RunStatus, *, changes: bool) -> None:
    """Raise `CannotContinue` for a run that goes on, or that has succeeded and is not changed.

    Args:
        run_id: The run.
        status: How it ended.
        changes: Whether fields of its spec are to differ.
    """
    if not status.is_over:
        raise CannotContinue(f"The run {run_id} is still running; stop it first: trainflow stop {run_id}")
    if status is RunStatus.SUCCEEDED and not changes:
        raise CannotContinue(
            f"The run {run_id} has succeeded; say with --set what is to differ, such as a larger number of steps."
        )
