"""Bounds for the checkpoints that a continuing run may resume from.

A run that ended without a finite loss has written checkpoints of NaN weights behind good ones
(docs/decisions/0097-resume-before-nan.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainflow.observed.step import Step
from trainflow.protocol.placeholders import STEP
from trainflow.spec.run_spec import ResumeUntil, as_list
from trainflow.workflow.run import MetricsCursor
from trainflow.workflow.run_record import Training


def resume_bounds(
    run_id: str,
    document: Mapping[str, Any],
    losses: Training | MetricsCursor | None,
    *,
    steps: Sequence[Step] = (),
    from_step: int | None = None,
) -> dict[str, ResumeUntil]:
    """The bounds for the checkpoints of a run that is continued, and of those that it continued, by their ids.

    Args:
        run_id: The run.
        document: Its spec.
        losses: Facts about its newest losses; None if they are not known.
        steps: Its logged steps.
        from_step: Highest step that a person has chosen, in whichever of the runs.
    """
    before = as_list(document.get("resume_from"))
    if from_step is not None:
        chosen = _chosen(steps, from_step)
        return {run_id: chosen, **dict.fromkeys(before, chosen.model_copy(update={"time": None}))}
    earlier = {name: ResumeUntil.model_validate(until) for name, until in (document.get("resume_until") or {}).items()}
    if losses is None or not losses.non_finite_in_a_row:
        return earlier
    return {run_id: _before_non_finite(losses), **earlier, **_first_loss_bounds(run_id, document, losses)}


def _chosen(steps: Sequence[Step], from_step: int) -> ResumeUntil:
    later = [step.logged_at for step in steps if step.step > from_step]
    return ResumeUntil(step=from_step, time=min(later, default=None), reason=f"it is newer than step {from_step}")


def _before_non_finite(losses: Training | MetricsCursor) -> ResumeUntil:
    """The bound of a run that ended with a loss that is not finite: its newest step with a finite one.

    A loss that recovered, as with scaled losses that skip steps, sets no bound.
    """
    if losses.last_finite_step is None:
        step, finite = max((losses.first_non_finite_step or 0) - 1, 0), "no loss before was finite"
    else:
        step, finite = losses.last_finite_step, f"its newest finite loss was at step {losses.last_finite_step}"
    reason = f"the run ended with a loss that was NaN or infinite, and {finite}"
    return ResumeUntil(step=step, time=losses.non_finite_since, reason=reason)


def _first_loss_bounds(
    run_id: str, document: Mapping[str, Any], losses: Training | MetricsCursor
) -> dict[str, ResumeUntil]:
    """Bounds that pass over the checkpoint of a run whose losses were all NaN or infinite since it resumed."""
    if losses.resumed_from is None or losses.last_finite_step is not None:
        return {}
    number, has_step = losses.resumed_from, STEP in str((document.get("checkpoint") or {}).get("path"))
    bound = ResumeUntil(
        step=max(number - 1, 0) if has_step else None,
        time=None if has_step else datetime.fromtimestamp(number, UTC),
        reason=f"{run_id} resumed from a checkpoint and had no finite loss",
    )
    return dict.fromkeys(as_list(document.get("resume_from")), bound)
