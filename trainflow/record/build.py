"""Builds the run record from all observations; pure functions, which get the observations as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from trainflow.errors import InvalidRunSpec
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.observed.step import announced_length
from trainflow.observed.visit import Visit
from trainflow.progress.missing_steps import missing_at_end, missing_steps_warning
from trainflow.progress.reader import unparsable_warning
from trainflow.protocol.pods import RUNS_MOUNT
from trainflow.protocol.reported_checkpoints import unmatched_warning
from trainflow.record.function_failures import with_function
from trainflow.record.history import ExecutionHistory, publication, task_output, trained_steps
from trainflow.record.inputs import checkpoints, inputs
from trainflow.record.intervals import Interval, uncovered_seconds, union
from trainflow.record.jobs import jobs_of, running_intervals, submitted_jobs
from trainflow.record.left_out import left_out_warnings
from trainflow.record.restarts import all_restarts, ignored_warning
from trainflow.record.results import outcome_warnings, result_warnings, unpublished_warnings
from trainflow.record.run_states import own_execution, state_of_history
from trainflow.record.steps import KeptSteps, median_speeds, throughput_of
from trainflow.record.wording import count
from trainflow.spec.run_spec import stored_run_spec
from trainflow.workflow.run_record import (
    Compilation,
    Execution,
    MetricsPublished,
    RunError,
    RunRecord,
    RunStatus,
    StateVisit,
    Training,
)


# Decision 27: the history and the stored steps are enough for a record, also after a function has failed.
def build_record(
    *,
    run_id: str,
    history: ExecutionHistory,
    children: Sequence[ExecutionHistory],
    kept: KeptSteps,
    now: datetime,
    pods: Sequence[Pod] | None = None,
    published: MetricsPublished | None = None,
    status: RunStatus | None = None,
    error: RunError | None = None,
) -> RunRecord:
    """Build the record of a run.

    Args:
        run_id: The run's id, which is the execution's name.
        history: The run's own execution.
        children: The watch windows, in their order; the last event of each is enough for its duration.
        kept: The steps of the training that the workflow has stored.
        now: End of a run that has not ended.
        pods: Every pod of the run, each as it was last observed; None where pods are not watched, as in the workflow.
        published: What was read back from CloudWatch; None if it was not compared with rank 0's log.
        status: The status of a run whose history does not contain it: the run is about to end, or its history cannot be
            read any more.
        error: The error of such a run; it overrides the history's.
    """
    state = state_of_history(run_id, history, children, now=now)
    started_at = state.started_at or now
    ended_at = state.ended_at or (now if status not in (None, RunStatus.RUNNING) else None)
    findings = _diagnostics(task_output(history, "CollectDiagnostics"))
    status = state.status if state.ended_at else status or RunStatus.RUNNING
    return RunRecord(
        run_id=run_id,
        status=status,
        error=None if status is RunStatus.SUCCEEDED else with_function(error or state.error, (history, *children)),
        owner=state.owner,
        team=state.team,
        project=state.project,
        spec=dict(state.spec),
        instance_type=state.instance_type,
        given_up=(task_output(history, "EnsureCapacity") or {}).get("given_up", []),
        avoided_nodes=list(state.avoided_nodes),
        started_at=started_at,
        ended_at=ended_at,
        states=[_state_visit(visit) for visit in state.states],
        executions=[
            Execution(arn=one.arn, state_machine=one.state_machine, events=one.num_events)
            for one in (history, *children)
        ],
        jobs=submitted_jobs(history, findings) if pods is None else jobs_of(run_id, pods),
        restarts=all_restarts(state.restarts, kept.progress.in_place, kept.progress.steps_again),
        checkpoints=checkpoints(kept, history),
        inputs=inputs(state.spec, history),
        cost=state.cost,
        compile=_compilation(task_output(history, "CheckCompilation"), task_output(history, "AcquireCache")),
        training=_training(kept, history),
        metrics_published=_published(published, kept),
        overhead_seconds=None if pods is None else _overhead(Interval(started_at, ended_at or now), pods),
        lost_files=kept.progress.lost_files,
        warnings=[
            *state.warnings,
            *_warnings(kept, state.spec, status),
            *_result_warnings(run_id, status, kept, history, state),
            *left_out_warnings(state.spec, error or state.error),
        ],
        not_checked=(task_output(history, "Preflight") or {}).get("notes", []),
        diagnostics=findings,
    )


def overhead_by_state(record: RunRecord) -> dict[str, float]:
    """The seconds of each state of the run's own execution without a running pod of the run.

    Visits of one state are added up, as in a loop; the states are in the order of their first visit. Together they make
    `overhead_seconds`, but for the instants between two states.
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


def _state_visit(visit: Visit) -> StateVisit:
    facts = asdict(visit)
    del facts["kind"]
    return StateVisit(**facts)


def _overhead(window: Interval, pods: Iterable[Pod]) -> float:
    return round(uncovered_seconds(window, running_intervals(pods, window.end)), 3)


def _published(compared: MetricsPublished | None, kept: KeptSteps) -> MetricsPublished | None:
    """Published steps, with the result of a comparison if one was made; None if nothing was published."""
    told = kept.progress
    if compared is not None:
        counted = {
            "log_rotations": told.log_rotations,
            "moved": told.points_moved,
            "dropped": told.points_dropped,
            "unparsable_lines": told.lines_unparsable,
        }
        return compared.model_copy(update=counted)
    if told.first_step is None and not told.lines_unparsable:
        return None
    return MetricsPublished(
        datapoints=told.datapoints,
        first_step=told.first_step,
        last_step=told.last_step,
        log_rotations=told.log_rotations,
        non_finite=told.non_finite_steps,
        moved=told.points_moved,
        dropped=told.points_dropped,
        unparsable_lines=told.lines_unparsable,
    )


def _warnings(kept: KeptSteps, spec: Any, status: RunStatus) -> list[str]:
    """Warnings about steps that the log lacks although the spec announces them, losses that are not finite, and
    unreadable lines."""
    told = kept.progress
    unparsable = unparsable_warning(told.lines_unparsable)
    missing = missing_at_end(told) if status is RunStatus.SUCCEEDED else told.since_step.missing
    said = unmatched = ignored = None
    with suppress(InvalidRunSpec):
        valid = stored_run_spec(spec)
        said = missing_steps_warning(valid.progress, missing)
        if (described := valid.described_checkpoint) is not None:
            unmatched = unmatched_warning(told.reported_checkpoint, described.path)
            ignored = ignored_warning(told.ignored, described.path)
    return [*_divergence(kept), *(each for each in (said, unparsable, unmatched, ignored) if each)]


def _result_warnings(
    run_id: str, status: RunStatus, kept: KeptSteps, history: ExecutionHistory, state: RunState
) -> list[str]:
    artifacts, trained = publication(history).get("artifacts"), trained_steps(history)
    found = result_warnings(status, kept, artifacts=artifacts, trained_steps=trained)
    try:
        spec = stored_run_spec(state.spec)
    except InvalidRunSpec:
        return found
    if artifacts is not None:
        folder, kept_gib = f"{RUNS_MOUNT}/{run_id}", spec.workload.kept_gib
        found += unpublished_warnings(artifacts, run_folder=folder, kept_gib=kept_gib)
    return found + outcome_warnings(
        status, kept, spec, artifacts=artifacts, trained_steps=trained, seconds=_training_seconds(state.states)
    )


def _training_seconds(states: Sequence[Visit]) -> float | None:
    """Time from the submission of the training to its end; None before, and without a training."""
    visits = [visit for visit in states if visit.name == "WatchTraining"]
    ended = [visit.exited_at - visit.entered_at for visit in visits if visit.exited_at is not None]
    return sum(each.total_seconds() for each in ended) if ended and len(ended) == len(visits) else None


def _divergence(kept: KeptSteps) -> list[str]:
    told = kept.progress
    if not told.non_finite_steps:
        return []
    return [
        f"The loss was NaN or infinite at {count(told.non_finite_steps, 'logged step')}, first at step "
        f"{told.first_non_finite_step}: what was trained from there on is worth nothing unless the program skips such "
        "steps."
    ]


def _compilation(checked: Any, acquired: Any) -> Compilation | None:
    """Compilation of the run itself; else that of the cache it found."""
    answer = checked or (acquired or {}).get("compilation")
    if not isinstance(answer, dict) or "graphs" not in answer:
        return None
    return Compilation(
        graphs=answer["graphs"],
        succeeded=answer.get("succeeded", 0),
        failed=answer.get("failed", 0),
        cache=answer.get("cache", "miss"),
    )


def _training(kept: KeptSteps, history: ExecutionHistory) -> Training | None:
    """None if training never began. Its steps are counted by the program, or else by the last step that it logged."""
    if not kept.steps and task_output(history, "SubmitTraining") is None:
        return None
    published = publication(history)
    told = trained_steps(history)
    losses = [step.loss for step in kept.steps if step.loss is not None]  # a step may have other figures alone
    return Training(
        steps=(kept.progress.last_step or 0) if told is None else told,
        length=announced_length(kept.steps),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        sequences_per_second=kept.sequences_per_second,
        throughput_of=throughput_of(kept.steps),
        speeds=median_speeds(kept.steps),
        last_metrics=kept.last_metrics,
        checkpoint=(published.get("artifacts") or {}).get("checkpoint"),
        non_finite_steps=kept.progress.non_finite_steps,
        first_non_finite_step=kept.progress.first_non_finite_step,
        non_finite_in_a_row=kept.progress.non_finite_in_a_row,
        non_finite_since=kept.progress.non_finite_since,
        last_finite_step=kept.progress.last_finite_step if kept.progress.non_finite_in_a_row else None,
        resumed_from=kept.progress.resumed_from,
    )


def _diagnostics(answer: Any) -> list[dict[str, Any]]:
    """The findings, whether the state answers with the list itself or with an object that holds one."""
    if isinstance(answer, dict):
        answer = next((value for value in answer.values() if isinstance(value, list)), [])
    return [finding for finding in answer if isinstance(finding, dict)] if isinstance(answer, list) else []
