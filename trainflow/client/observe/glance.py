"""A run at one moment, read once; `RunObserver` follows a run instead."""

from __future__ import annotations

from datetime import UTC, datetime

from trainflow.client.observe.cluster import PodSource
from trainflow.client.observe.executions import ExecutionTree
from trainflow.client.observe.pods import PodWatcher
from trainflow.client.observe.snapshot import RunSnapshot
from trainflow.models.run_record import RunStatus
from trainflow.models.total_steps import total_steps
from trainflow.record.build import all_visits
from trainflow.record.cost import node_use
from trainflow.record.failure import run_error
from trainflow.record.history import current_state
from trainflow.record.restarts import restarts
from trainflow.record.steps import KeptSteps


def glance(run_id: str, executions: ExecutionTree, pods: PodSource, kept: KeptSteps) -> RunSnapshot:
    """What is known now.

    Args:
        run_id: The run.
        executions: Its executions, read.
        pods: Where its pods are listed.
        kept: The steps that the workflow has stored.
    """
    history = executions.history
    visits = tuple(all_visits([history, *executions.children]))
    current = current_state([visit for visit in visits if visit.execution == history.name])
    running = history.status is RunStatus.RUNNING
    seen = PodWatcher(pods, run_id, lambda _pod: None)
    seen.read()
    given = history.input()
    spec = given if isinstance(given, dict) else {}
    now = datetime.now(UTC)
    return RunSnapshot(
        run_id=run_id,
        status=history.status,
        observed_at=now,
        execution=history.name,
        arn=history.arn,
        spec=spec,
        started_at=history.started_at,
        ended_at=history.ended_at,
        states=visits,
        current_state=current.name if current is not None and running else None,
        pods=seen.pods(),
        steps=kept.steps,
        total_steps=total_steps(spec, kept.steps[0].step if kept.steps else None),
        checkpoints=kept.checkpoints,
        restarts=tuple(restarts(history)),
        cost=node_use(history, spec).cost(end=history.ended_at or now),
        error=run_error(history),
        trouble=(executions.trouble or seen.trouble) if running else None,
    )
