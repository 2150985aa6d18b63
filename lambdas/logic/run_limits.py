"""Limits of a run as a whole: its time, its deadline and its cost. A run that reaches one ends with a checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainflow.errors import BudgetReached, DeadlineReached, TrainflowError
from trainflow.nodes.prices import usd_per_hour
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.run import LimitWarning, MetricsCursor, Run, Spending

WARNED_AT = 0.8
"""The owner is notified after this part of a limit."""

MARGIN = timedelta(minutes=15)
"""The cluster ends the run's job so long after the run's own end, if the workflow cannot."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Time when a limit, or a part of it, is reached."""

    limit: str | None
    """Field of the spec; None for the end of the nodes themselves."""
    at: datetime

    @property
    def error(self) -> type[TrainflowError]:
        """Error of a run that reaches it."""
        return BudgetReached if self.limit == "limits.max_usd" else DeadlineReached


SAVED_WITHIN = timedelta(minutes=10)
"""A run is stopped so long before the end of its nodes: a pod's grace period, and room for slow file systems."""


# Decision 43: a limit ends a run with a checkpoint, and warns at 80 %.
def held(
    run: Run,
    spending: Spending,
    *,
    nodes_ready: int,
    region: str,
    now: datetime,
    nodes_end_at: datetime | None = None,
) -> Spending:
    """The spending of a run that holds these ready nodes of its type from now on.

    On-demand prices count, also for other nodes. A type without a known price counts as 0: specs with `limits.max_usd`
    are refused for it.
    """
    compute = run.spec.compute
    price = usd_per_hour(compute.instance_type, region=region) or 0.0
    return spending.at_rate(min(nodes_ready, compute.held_nodes) * price, now=now, nodes_end_at=nodes_end_at)


def require_within_limits(
    run: Run, *, now: datetime, spending: Spending | None = None, progress: MetricsCursor | None = None
) -> None:
    """Require that none of the run's limits has been reached.

    Args:
        run: The run.
        now: Current time.
        spending: What its nodes cost; None while it holds none.
        progress: Progress of its training, for the message; None where that is not known.

    Raises:
        BudgetReached: If its nodes have cost `limits.max_usd`.
        DeadlineReached: If `limits.max_total_hours` or `limits.deadline` has passed.
    """
    spending = spending or Spending()
    bound = first_bound(run, spending)
    if bound is None or now < bound.at:
        return
    step = progress.last_step if progress else None
    trained = "" if step is None else f" until step {step}"
    limits = run.spec.limits
    if bound.error is BudgetReached:
        raise BudgetReached(
            f"The run's nodes have cost {spending.by(now):.2f} USD{trained}, at on-demand prices; limits.max_usd is "
            f"{limits.max_usd:g}."
        )
    if bound.limit is None:
        raise DeadlineReached(f"The run's nodes are terminated soon after {bound.at:%Y-%m-%d %H:%M} UTC{trained}.")
    value = limits.deadline.isoformat() if bound.limit == "limits.deadline" and limits.deadline else None
    reached = value or f"{limits.max_total_hours:g}"
    hours = (now - run.started_at) / timedelta(hours=1)
    raise DeadlineReached(f"The run has gone on for {hours:.2f} hours{trained}; {bound.limit} is {reached}.")


def first_bound(run: Run, spending: Spending) -> Bound | None:
    """The limit that is reached first, if the run goes on with the nodes that it holds; None without a limit."""
    return min(_bounds(run, spending), key=lambda bound: bound.at, default=None)


def _bounds(run: Run, spending: Spending, *, part: float = 1.0) -> list[Bound]:
    """Times when the limits of the run, or a part of each such as 0.8, are reached."""
    limits, started = run.spec.limits, run.started_at
    bounds = []
    if limits.max_total_hours is not None:
        bounds.append(
            Bound(limit="limits.max_total_hours", at=started + part * timedelta(hours=limits.max_total_hours))
        )
    if limits.deadline is not None:
        bounds.append(Bound(limit="limits.deadline", at=started + part * (limits.deadline - started)))
    if spending.nodes_end_at is not None:
        bounds.append(Bound(limit=None, at=started + part * (spending.nodes_end_at - SAVED_WITHIN - started)))
    if limits.max_usd is not None and (spent_at := _spent_at(spending, part * limits.max_usd)) is not None:
        bounds.append(Bound(limit="limits.max_usd", at=spent_at))
    return bounds


def warning(run: Run, spending: Spending, progress: MetricsCursor, *, now: datetime) -> LimitWarning | None:
    """Warning about a run that has used 80 % of the limit that it will reach first; None before that."""
    end = first_bound(run, spending)
    if end is None:
        return None
    (warned_at,) = (bound.at for bound in _bounds(run, spending, part=WARNED_AT) if bound.limit == end.limit)
    if now < warned_at:
        return None
    steps = total_steps(run.spec.model_dump(mode="json"), progress.first_step)
    trained_at = _trained_at(progress, steps, now=now)
    return LimitWarning(
        limit=end.limit,
        ends_at=end.at,
        usd=round(spending.by(now), 2),
        last_step=progress.last_step,
        total_steps=steps,
        trained_at=trained_at,
        total_usd=round(spending.by(trained_at), 2) if trained_at else None,
    )


def seconds_left(run: Run, spending: Spending, *, now: datetime) -> int | None:
    """Seconds until the first limit is reached, at least one; None without a limit."""
    bound = first_bound(run, spending)
    return None if bound is None else max(1, math.ceil((bound.at - now).total_seconds()))


def longest_job(run: Run, spending: Spending | None = None, *, submitted_at: datetime | None = None) -> timedelta:
    """Time limit of a job in the cluster: that of one job, or the rest of the run's time and a margin.

    Args:
        run: The run.
        spending: What its nodes cost; None for a job that runs on none of them.
        submitted_at: When the job is submitted; None for one whose time may count from the run's start.
    """
    longest, bound = timedelta(hours=run.spec.limits.max_duration_hours), first_bound(run, spending or Spending())
    if bound is None:
        return longest
    left = bound.at - (submitted_at or run.started_at)
    return min(longest, max(left, timedelta(0)) + MARGIN)


def _spent_at(spending: Spending, usd: float) -> datetime | None:
    """Time when a run has spent so much; None if it never does with its present nodes."""
    if spending.since is None:
        return None
    if spending.usd >= usd:
        return spending.since
    if spending.usd_per_hour <= 0:
        return None
    return spending.since + timedelta(hours=(usd - spending.usd) / spending.usd_per_hour)


def _trained_at(progress: MetricsCursor, steps: int | None, *, now: datetime) -> datetime | None:
    """Estimated end of a training at the rate of its steps so far, restarts included."""
    first, last, began = progress.first_step, progress.last_step, progress.first_step_at
    if steps is None or first is None or last is None or began is None or last <= first or now <= began:
        return None
    return now + (now - began) / (last - first) * max(0, steps - last)
