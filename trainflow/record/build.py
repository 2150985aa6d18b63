"""The run record from everything that was observed. Pure: what is read from outside comes in as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from lambdas.models.metrics_line import StepMetrics
from lambdas.models.run import Stage
from lambdas.models.run_record import (
    Compilation,
    Execution,
    MetricsPublished,
    RunError,
    RunRecord,
    RunStatus,
    StateVisit,
    Training,
)
from trainflow.record.failure import run_error
from trainflow.record.history import ExecutionHistory, Visit, task_output, visits
from trainflow.record.intervals import Interval, uncovered_seconds, union
from trainflow.record.jobs import jobs_of, latest_of_each_index, running_intervals
from trainflow.record.pods import PodView
from trainflow.record.published import latest_of_each_step


def build_record(
    *,
    run_id: str,
    history: ExecutionHistory,
    children: Sequence[ExecutionHistory],
    pods: Sequence[PodView],
    lines: Sequence[StepMetrics],
    published: MetricsPublished | None,
    now: datetime,
    spec: Mapping[str, Any] | None = None,
    status: RunStatus | None = None,
    error: RunError | None = None,
) -> RunRecord:
    """What happened in a run.

    Args:
        run_id: The run's id, which is the execution's name.
        history: The run's own execution.
        children: The watch windows, in their order.
        pods: Every pod of the run, each as it was last seen.
        lines: Every metrics line of the training job's rank 0, in the order of writing.
        published: What was read back from CloudWatch; None if there was nothing to compare.
        now: End of a run that has not ended.
        spec: The run spec; by default the execution's input.
        status: Overrules the history's, for a run whose execution could not be asked any more.
        error: Overrules the history's.
    """
    started_at = history.started_at or now
    ended_at = history.ended_at or (now if status not in (None, RunStatus.RUNNING) else None)
    training_pods = [pod for pod in pods if pod.stage == Stage.TRAINING]
    return RunRecord(
        run_id=run_id,
        status=status or history.status,
        error=error or run_error(history),
        spec=dict(spec if spec is not None else history.input() or {}),
        started_at=started_at,
        ended_at=ended_at,
        states=[_state_visit(visit) for visit in all_visits([history, *children])],
        executions=[
            Execution(arn=one.arn, state_machine=one.state_machine, events=one.num_events)
            for one in (history, *children)
        ],
        jobs=jobs_of(run_id, pods),
        compile=_compilation(task_output(history, "CheckCompilation"), task_output(history, "AcquireCache")),
        training=_training(lines, training_pods, task_output(history, "PublishArtifacts")),
        metrics_published=published and published.model_copy(update={"log_rotations": _log_rotations(children)}),
        overhead_seconds=_overhead(Interval(started_at, ended_at or now), pods),
        not_checked=(task_output(history, "Preflight") or {}).get("notes", []),
        diagnostics=_diagnostics(task_output(history, "CollectDiagnostics")),
    )


def all_visits(histories: Iterable[ExecutionHistory]) -> list[Visit]:
    """State visits of several executions, in the order of entering."""
    return sorted((visit for one in histories for visit in visits(one)), key=lambda visit: visit.entered_at)


def overhead_by_state(record: RunRecord) -> dict[str, float]:
    """Seconds of each state of the run's own execution during which no pod of the run was running.

    States that share their name (a loop's laps) are added up; they come in the order of their first visit. Together
    they make `overhead_seconds`, but for the instants between two states.
    """
    end = record.ended_at or record.started_at
    running = union(
        Interval(pod.started_at, pod.finished_at or end)
        for job in record.jobs.values()
        for pod in job.pods
        if pod.started_at is not None
    )
    seconds: dict[str, float] = {}
    for visit in record.states:
        if visit.execution == own_execution(record):
            window = Interval(visit.entered_at, visit.exited_at or end)
            seconds[visit.name] = seconds.get(visit.name, 0.0) + uncovered_seconds(window, running)
    return {name: round(spent, 3) for name, spent in seconds.items()}


def own_execution(record: RunRecord) -> str:
    """Name of the run's own execution, as opposed to its watch windows'."""
    return record.executions[0].arn.rsplit(":", 1)[-1] if record.executions else record.run_id


def _state_visit(visit: Visit) -> StateVisit:
    return StateVisit(
        name=visit.name,
        entered_at=visit.entered_at,
        exited_at=visit.exited_at,
        attempts=visit.attempts,
        execution=visit.execution,
    )


def _overhead(window: Interval, pods: Iterable[PodView]) -> float:
    return round(uncovered_seconds(window, running_intervals(pods, window.end)), 3)


def _log_rotations(children: Iterable[ExecutionHistory]) -> int:
    """As the newest cursor counts them: it travels from window to window."""
    answers = [task_output(child, state) for child in children for state in ("PublishMetrics", "PublishLastMetrics")]
    return max((answer["cursor"].get("log_rotations", 0) for answer in answers if answer), default=0)


def _compilation(checked: Any, acquired: Any) -> Compilation | None:
    """What the run compiled itself; else what it found compiled."""
    answer = checked or (acquired or {}).get("compilation")
    if not isinstance(answer, dict) or "graphs" not in answer:
        return None
    return Compilation(
        graphs=answer["graphs"],
        succeeded=answer.get("succeeded", 0),
        failed=answer.get("failed", 0),
        cache=answer.get("cache", "miss"),
    )


def _training(lines: Sequence[StepMetrics], pods: Sequence[PodView], published: Any) -> Training | None:
    """None if training never began; the number of steps is rank 0's own, or else the steps that it logged."""
    if not pods and not lines:
        return None
    steps = latest_of_each_step(lines)
    artifacts = published.get("artifacts") or {} if isinstance(published, dict) else {}
    result = next((pod.result for pod in latest_of_each_index(pods) if pod.index == 0), {})
    told = result.get("steps")
    return Training(
        steps=told if isinstance(told, int) else len(steps),
        first_loss=steps[0].loss if steps else None,
        last_loss=steps[-1].loss if steps else None,
        sequences_per_second=round(median(step.throughput for step in steps), 2) if steps else None,
        checkpoint=artifacts.get("checkpoint"),
    )


def _diagnostics(answer: Any) -> list[dict[str, Any]]:
    """The findings, whether the state answers with the list itself or with an object that holds one."""
    if isinstance(answer, dict):
        answer = next((value for value in answer.values() if isinstance(value, list)), [])
    return [finding for finding in answer if isinstance(finding, dict)] if isinstance(answer, list) else []
