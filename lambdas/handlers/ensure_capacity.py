"""Task state `EnsureCapacity`: counts the gang's ready nodes and requests the missing ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.task import task
from lambdas.logic.capacity import is_given_up
from lambdas.logic.run_limits import held, require_within_limits, seconds_left
from trainflow.record.cost import region_of
from trainflow.workflow.pauses import pause_seconds
from trainflow.workflow.run import MetricsCursor, Run, Spending

MAX_QUOTATION = 300
"""Longest message of AWS or the cluster that is quoted in the execution's history."""


class Event(BaseModel):
    run: Run
    waiting_since: datetime
    waited_seconds: int = 0
    """Seconds waited before this poll, in all attempts of the run."""
    spending: Spending = Spending()
    progress: MetricsCursor = MetricsCursor()


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether every node of the gang is ready, the number of ready nodes, and the seconds before the next poll.

    `pending_reason` is the report of a cluster that makes nodes by itself; null without one.
    `waits_for` names the runs that have to end first; null if nodes can be had for this one, too.
    `run` is the run with the nodes that it avoids from now on. `next_run` is the run on the next instance type of its
    spec if this one lacked capacity; else null.
    """
    run, spec = event.run, event.run.spec
    require_within_limits(run, now=datetime.now(UTC), spending=event.spending, progress=event.progress)
    capacity = backends.connect(spec.compute.backend).ensure_nodes(run, waiting_since=event.waiting_since)
    run = run.model_copy(update={"failed_nodes": run.failed_nodes.used_again(capacity.used_again)})
    limits, now = spec.limits, datetime.now(UTC)
    given_up = is_given_up(run, capacity, waiting_since=event.waiting_since, now=now)
    next_run = run.on_next_type() if given_up else None
    # Nodes of a type that is given up are released next.
    holding = 0 if given_up else capacity.nodes_ready
    spending = held(
        run,
        event.spending,
        nodes_ready=holding,
        region=region_of(run.execution_arn),
        now=now,
        nodes_end_at=None if given_up else capacity.ends_at,
    )
    left = limits.capacity_timeout_minutes * 60 - (now - event.waiting_since).total_seconds()
    of_run = seconds_left(run, spending, now=now)
    left = left if of_run is None else min(left, of_run)
    pause = pause_seconds(event.waited_seconds, shortest=limits.poll_seconds, longest=left)
    return {
        "run": run.model_dump(mode="json"),
        "ready": capacity.ready,
        "nodes_ready": capacity.nodes_ready,
        "nodes_wanted": capacity.nodes_wanted,
        "waits_for": capacity.waits_for.as_json() if capacity.waits_for else None,
        "wait_seconds": 0 if capacity.ready or given_up else pause,
        "instance_type": spec.compute.instance_type,
        "given_up": list(run.given_up),
        "avoided_nodes": list(run.failed_nodes.avoided),
        "shortage": capacity.shortage[:MAX_QUOTATION] if capacity.shortage else None,
        "pending_reason": capacity.pending_reason[:MAX_QUOTATION] if capacity.pending_reason else None,
        "spending": spending.model_dump(mode="json"),
        "next_run": next_run.model_dump(mode="json") if next_run else None,
    }
