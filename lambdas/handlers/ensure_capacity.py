"""Task state `EnsureCapacity`: counts the gang's ready nodes and requests the missing ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends
from lambdas.handlers.task import task
from lambdas.logic.capacity import require_time_left
from lambdas.logic.pauses import pause_seconds
from trainflow.models.run import Run


class Event(BaseModel):
    run: Run
    waiting_since: datetime
    waited_seconds: int = 0
    """Seconds waited before this poll, in all attempts of the run."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether every node of the gang is ready, the number of ready nodes, and the seconds before the next poll."""
    spec = event.run.spec
    capacity = backends.connect(spec.compute.backend).ensure_nodes(event.run)
    limits, now = spec.limits, datetime.now(UTC)
    require_time_left(spec, capacity, waiting_since=event.waiting_since, now=now)
    left = limits.capacity_timeout_minutes * 60 - (now - event.waiting_since).total_seconds()
    pause = pause_seconds(event.waited_seconds, shortest=limits.poll_seconds, longest=left)
    return {
        "ready": capacity.ready,
        "nodes_ready": capacity.nodes_ready,
        "nodes_wanted": capacity.nodes_wanted,
        "wait_seconds": 0 if capacity.ready else pause,
    }
