"""Makes the state of a run from the history of its executions, or from its record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainflow.observed.node_wait import read_node_wait
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RECORD_FIELDS, RunState, length_of_training, recorded_state
from trainflow.observed.step import Step
from trainflow.observed.visit import Visit
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.record.cost import node_use
from trainflow.record.failure import run_error
from trainflow.record.function_failures import with_function
from trainflow.record.history import ExecutionHistory, all_visits, current_state, task_output, task_outputs
from trainflow.record.restarts import avoided_nodes, refuting_nodes, restart_warnings, restarts
from trainflow.workflow.owner import FIELD, read_owner, spec_of_input
from trainflow.workflow.run_record import Job, RunRecord, RunStatus


def state_of_history(
    run_id: str, history: ExecutionHistory, children: Sequence[ExecutionHistory], *, now: datetime
) -> RunState:
    """The state of a run as far as its executions show it: without pods and steps.

    Args:
        run_id: The run.
        history: The run's own execution.
        children: The watch windows, in their order.
        now: Current time.
    """
    given = history.input()
    found = spec_of_input(given)
    spec = found if isinstance(found, Mapping) else {}
    team, project = _team_and_project(history, spec)
    visits = tuple(all_visits([history, *children]))
    current = current_state([visit for visit in visits if visit.execution == history.name])
    answer = task_output(history, "EnsureCapacity")
    return RunState(
        run_id=run_id,
        status=history.status,
        observed_at=now,
        execution=history.name,
        arn=history.arn,
        owner=read_owner(given.get(FIELD) if isinstance(given, Mapping) else None),
        team=team,
        project=project,
        spec=spec,
        instance_type=answer.get("instance_type") if isinstance(answer, dict) else None,
        started_at=history.started_at,
        ended_at=history.ended_at,
        node_wait=read_node_wait(answer) if history.status is RunStatus.RUNNING else None,
        states=visits,
        state=current.name if current is not None and history.status is RunStatus.RUNNING else None,
        restarts=tuple(restarts(history)),
        avoided_nodes=avoided_nodes(history),
        test_is_refuted=bool(refuting_nodes(history)),
        cost=node_use(history, spec).cost(end=history.ended_at or now),
        error=with_function(run_error(history), (history, *children)),
        warnings=tuple(restart_warnings(history)),
    )


def _team_and_project(history: ExecutionHistory, spec: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Team and project of a run: those that ValidateRun answered, with the deployment's defaults, else the spec's."""
    answer = next((task.fields for task in task_outputs(history) if task.state == "ValidateRun"), {})
    run = answer.get("run")
    valid = run.get("spec") if isinstance(run, Mapping) else None
    source = valid if isinstance(valid, Mapping) else spec
    team, project = (source.get(name) for name in ("team", "project"))
    return team if isinstance(team, str) else None, project if isinstance(project, str) else None


def state_of_record(record: RunRecord, steps: Sequence[Step] | None = None) -> RunState:
    """The state of a run as its record describes it.

    Args:
        record: The record.
        steps: The steps that were stored beside it; None where only the record is at hand.
    """
    state = recorded_state(record.model_dump(mode="json", include=RECORD_FIELDS))
    if steps is None:
        return state
    return replace(
        state,
        execution=own_execution(record),
        arn=record.executions[0].arn if record.executions else "",
        instance_type=record.instance_type,
        states=tuple(Visit(**dict(visit), kind="") for visit in record.states),
        pods=tuple(_with_rank0(record.jobs, state.pods)),
        steps=tuple(steps),
        total_steps=length_of_training(record.spec, steps) or state.total_steps,
        checkpoints=tuple(
            CheckpointReport(step=saved.step, num_bytes=saved.size_bytes, saved_at=saved.saved_at)
            for saved in record.checkpoints
            if saved.step is not None and saved.saved_at is not None
        ),
        cost=record.cost,
        nodes_busy=record.nodes_busy,
    )


def own_execution(record: RunRecord) -> str:
    """Name of the run's own execution, as opposed to its watch windows'."""
    return record.executions[0].arn.rsplit(":", 1)[-1] if record.executions else record.run_id


def _with_rank0(jobs: Mapping[str, Job], pods: Sequence[Pod]) -> Iterator[Pod]:
    """The pods by their jobs. The workflow's own record has the failed ones, and of the others the name of rank 0's."""
    for stage, job in jobs.items():
        if job.rank0 is not None and job.rank0 not in {pod.name for pod in job.pods}:
            phase = job.phase if job.phase == "Succeeded" else "Unknown"
            yield Pod(name=job.rank0, uid=job.rank0, stage=stage, attempt=job.attempts, job_name=job.name, phase=phase)
        yield from (pod for pod in pods if pod.stage == stage)
