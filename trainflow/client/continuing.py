"""The spec of a run that continues an earlier one from its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainflow.client.continuable import CannotContinue as CannotContinue
from trainflow.client.continuable import require_continuable
from trainflow.client.programs.ignored_checkpoint import ignored_checkpoint
from trainflow.client.resume_bounds import resume_bounds
from trainflow.errors import InvalidRunSpec
from trainflow.observed.step import Step
from trainflow.spec.changes import merged
from trainflow.spec.document import canonical
from trainflow.spec.limits import require_limits_ahead
from trainflow.spec.run_spec import MAX_CONTINUED, ResumeUntil, RunSpec, as_list, parse_run_spec, with_present_names
from trainflow.workflow.run_record import RunRecord
from trainflow.workflow.run_status import RunStatus

TRAINING_STATE = "SubmitTraining"
"""First state of a run's training; checkpoints do not exist before it."""


# Decision 68: a run that continues another one has its own folder, and leaves the other as it is.
def continued_spec(
    run_id: str,
    document: Mapping[str, Any],
    *,
    status: RunStatus,
    changes: Mapping[str, Any] | None = None,
    bounds: Mapping[str, ResumeUntil] | None = None,
) -> RunSpec:
    """The spec of a new run that continues an earlier one.

    Args:
        run_id: The earlier run.
        document: Its spec.
        status: How it ended.
        changes: Fields that differ, a JSON merge patch (RFC 7386).
        bounds: Bounds for the checkpoints, by the runs' ids. Default: the earlier run's own.

    Raises:
        CannotContinue: If the earlier run goes on, or has succeeded and nothing is to change.
        InvalidRunSpec: If the changes do not make a spec that could start now.
    """
    require_continuable(run_id, status, changes=bool(changes))
    earlier = with_present_names(dict(document))
    earlier_runs = [run_id, *as_list(earlier.get("resume_from"))][:MAX_CONTINUED]
    described = {**merged(earlier, changes or {}), "resume_from": earlier_runs}
    if bounds is not None:
        named = {name: bound.model_dump(mode="json") for name, bound in bounds.items() if name in earlier_runs}
        described["resume_until"] = named
    canonical(described)  # refuses what an execution's input cannot hold
    try:
        spec = parse_run_spec(described)
        require_limits_ahead(spec, now=datetime.now(UTC))
    except InvalidRunSpec as error:
        raise InvalidRunSpec(f"The run {run_id} cannot be continued: {error}") from None
    return spec


def spec_continuing(
    record: RunRecord,
    changes: Mapping[str, Any] | None = None,
    *,
    steps: Sequence[Step] = (),
    from_step: int | None = None,
) -> RunSpec:
    """The spec of a new run that continues the one of a record.

    Args:
        record: The record.
        changes: See `continued_spec`.
        steps: Its logged steps.
        from_step: Highest step of the checkpoint, if a person has chosen one.

    Raises:
        CannotContinue: Also if it ended before its training began, and continues no other run.
        InvalidRunSpec: See `continued_spec`.
    """
    bounds = resume_bounds(record.run_id, record.spec, record.training, steps=steps, from_step=from_step)
    spec = continued_spec(record.run_id, record.spec, status=record.status, changes=changes, bounds=bounds)
    trained = TRAINING_STATE in {visit.name for visit in record.states}
    if not trained and spec.resume_from == [record.run_id]:
        raise CannotContinue(
            f"The run {record.run_id} ended before its training began, so it has no checkpoint; start its spec anew "
            "with `trainflow run`."
        )
    return spec


def resume_note(spec: RunSpec) -> str | None:
    """Sentences for people about what a continuing run resumes from; None without such facts.

    They are about checkpoints that are passed over, and about a program that is not given the path.
    """
    sentences = [
        f"Checkpoints of {run_id} {_newer_than(until)} are passed over: {until.reason}."
        for run_id, until in spec.resume_until.items()
    ]
    ignored = ignored_checkpoint(spec)
    return " ".join([*sentences, *([f"{ignored}."] if ignored else [])]) or None


def _newer_than(until: ResumeUntil) -> str:
    has_step = until.step is not None
    step = f"after step {until.step}" if has_step else ""
    time = f"written from {until.time:%Y-%m-%d %H:%M:%S} UTC on" if until.time is not None else ""
    return f"{step}, or {time} if their names have no step," if step and time else step or time
