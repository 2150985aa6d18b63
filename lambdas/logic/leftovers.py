"""Judges objects of runs that are not running: they are deleted, kept, or ignored because too little is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainflow.deployment.functions import TASKS
from trainflow.nodes.prices import usd_per_hour
from trainflow.workflow.leftovers import CLAIM, Execution, Held, LeftoverState, RunLeftovers
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import RunRow

GRACE = timedelta(minutes=20)
"""Time after the end of a run while its clean-up may be active: three attempts of three minutes with Lambda's pauses of
one and two minutes between them (AWS Lambda developer guide, "Asynchronous invocation"), and EventBridge's delay."""

IN_FLIGHT = timedelta(seconds=max(function.timeout_seconds for function in TASKS)) + timedelta(minutes=1)
"""Time after a stop while a function of the stopped execution may still act: Step Functions does not end it, Lambda's
time limit does. The minute is for a cold start, which that limit leaves out, and for differences of clocks."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Facts about the run that holds an object."""

    row: RunRow | None
    """The run's row; None if the run table does not have one."""
    execution: Execution | None = None
    """Its execution; None if Step Functions does not have it (any more, 90 days after its end)."""
    seen: bool = True
    """Whether Step Functions could be asked."""


# Decision 45: Step Functions decides which runs have ended; an unknown run is not touched.
def leftovers(held: Iterable[Held], owners: Mapping[str, Owner], *, now: datetime, region: str) -> list[RunLeftovers]:
    """Objects of each run that is not running, in the order of the runs' ids.

    Args:
        held: Everything that runs hold.
        owners: The runs that hold it, by id.
        now: Current time.
        region: Region whose prices apply.
    """
    by_run: dict[str, list[Held]] = {}
    for each in held:
        by_run.setdefault(each.run_id, []).append(each)
    judged = ((run_id, leftover_state(owners[run_id], now=now)) for run_id in sorted(by_run))
    return [
        _run_leftovers(run_id, state, by_run[run_id], owners[run_id], region=region)
        for run_id, state in judged
        if state is not None
    ]


def leftover_state(owner: Owner, *, now: datetime) -> LeftoverState | None:
    """Treatment of a run's objects; None if it is running.

    Step Functions decides whether a run goes on, not its row: a redriven run goes on although its row has an end.
    """
    row = owner.row
    if row is None:
        return LeftoverState.UNKNOWN
    if not owner.seen:
        return LeftoverState.UNSEEN
    if owner.execution is not None and owner.execution.status is RunStatus.RUNNING:
        return None
    # An execution that has just begun may not be described yet: the answer is eventually consistent.
    if now - max(filter(None, (_ended_at(owner), row.started_at))) < (IN_FLIGHT if _is_cleaned_up(owner) else GRACE):
        return LeftoverState.ENDING
    ended = row.model_copy(update={"status": _status(owner)})
    return LeftoverState.KEPT if ended.needs_nodes else LeftoverState.LEFT


def _is_cleaned_up(owner: Owner) -> bool:
    """Whether CleanUp has released what the run held, and only a function in flight can have made more since.

    CleanUp writes the row after it has released everything, so later than the end of the execution; the row of a run
    that ends by itself is written before, or in the same way by CleanUp if that failed.
    """
    row, execution = owner.row, owner.execution
    if row is None or row.ended_at is None or execution is None or execution.ended_at is None:
        return False
    return row.status is execution.status and row.ended_at >= execution.ended_at


def _ended_at(owner: Owner) -> datetime | None:
    if owner.execution is not None:
        return owner.execution.ended_at
    return owner.row.ended_at if owner.row is not None else None


def _status(owner: Owner) -> RunStatus | None:
    """Final status of the run; FAILED for one that Step Functions has forgotten and whose row lacks an end."""
    if owner.row is None or not owner.seen:
        return None
    if owner.execution is not None:
        return owner.execution.status
    return RunStatus.FAILED if owner.row.status is RunStatus.RUNNING else owner.row.status


def _run_leftovers(run_id: str, state: LeftoverState, held: list[Held], owner: Owner, *, region: str) -> RunLeftovers:
    num_nodes, instance_type = _nodes(held, owner.row)
    price = usd_per_hour(instance_type, region=region) if instance_type else None
    return RunLeftovers(
        run_id=run_id,
        state=state,
        status=_status(owner),
        ended_at=_ended_at(owner),
        objects=tuple(each.thing for each in held),
        instance_type=instance_type if num_nodes else None,
        num_nodes=num_nodes,
        usd_per_hour=0.0 if num_nodes == 0 else None if price is None else round(num_nodes * price, 4),
    )


def _nodes(held: list[Held], row: RunRow | None) -> tuple[int, str | None]:
    """Nodes that stay, and their type: those that are claimed; without a claim those that pods and jobs occupy."""
    claims = [each for each in held if each.thing.kind == CLAIM]
    if claims:
        return sum(each.num_nodes or 0 for each in claims), claims[0].instance_type
    occupied = len(frozenset[str]().union(*(each.nodes for each in held)))
    of_run = row.num_nodes if row is not None and any(each.num_nodes is None for each in held) else 0
    return max(occupied, of_run), row.instance_type if row is not None else None
