"""Groups the observed pods of a run into its jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainflow.observed.pod import Pod
from trainflow.record.history import ExecutionHistory, task_output
from trainflow.record.intervals import Interval
from trainflow.workflow.run import Stage, job_name
from trainflow.workflow.run_record import Job
from trainflow.workflow.run_record import Pod as PodEntry

GANGS = (Stage.PRECOMPILE, Stage.TRAINING)
"""Stages whose job is a gang with a rank 0; the others run one program."""


PHASES = {"succeeded": "Succeeded", "failed": "Failed"}
"""Phase of a job by the outcome that its last watch window reported."""


def submitted_jobs(history: ExecutionHistory, findings: Iterable[Mapping[str, Any]]) -> dict[str, Job]:
    """The gangs that the workflow submitted, by stage, as far as its own history contains them: only failed pods by
    name.

    Args:
        history: The run's own execution.
        findings: The diagnostics of a failed run.
    """
    jobs = {}
    for stage in GANGS:
        submitted = (task_output(history, f"Submit{stage.title()}") or {}).get("job")
        if submitted:
            watched = (task_output(history, f"Watch{stage.title()}") or {}).get("Output") or {}
            name = submitted["name"]
            failed = [finding for finding in findings if str(finding.get("pod", "")).startswith(f"{name}-")]
            jobs[stage.value] = Job(
                name=name,
                attempts=submitted["attempt"],
                phase=PHASES.get(watched.get("outcome", ""), "Unknown"),
                pods=[_failed_pod(finding) for finding in failed],
                rank0=watched.get("rank0"),
            )
    return jobs


def _failed_pod(finding: Mapping[str, Any]) -> PodEntry:
    return PodEntry(
        name=finding["pod"],
        node=finding.get("node"),
        phase="Failed",
        exit_code=finding.get("exit_code"),
        message=finding.get("reason"),
    )


def jobs_of(run_id: str, pods: Iterable[Pod]) -> dict[str, Job]:
    """The run's jobs by stage, in the order of the stages; pods of all attempts, oldest attempt first."""
    by_stage: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_stage[pod.stage].append(pod)
    order = [stage.value for stage in Stage]
    stages = sorted(by_stage, key=lambda stage: order.index(stage) if stage in order else len(order))
    return {stage: _job(run_id, stage, by_stage[stage]) for stage in stages}


def _job(run_id: str, stage: str, pods: Sequence[Pod]) -> Job:
    attempts = max(pod.attempt for pod in pods)
    latest = latest_of_each_index(pod for pod in pods if pod.attempt == attempts)
    is_gang = stage in GANGS
    known_name = next((pod.job_name for pod in latest if pod.job_name), None)
    return Job(
        name=known_name or (job_name(run_id, Stage(stage), attempts) if stage in list(Stage) else stage),
        attempts=attempts,
        phase=_phase(latest),
        pods=[_pod(pod) for pod in sorted(pods, key=lambda pod: (pod.attempt, pod.index, pod.name))],
        rank0=next((pod.name for pod in latest if pod.index == 0), None) if is_gang else None,
    )


def latest_of_each_index(pods: Iterable[Pod]) -> list[Pod]:
    """One pod an index, the youngest: a Job makes a new pod for an index whose pod was lost."""
    latest: dict[int, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created_at is not None, pod.created_at or datetime.min)):
        latest[pod.index] = pod
    return [latest[index] for index in sorted(latest)]


def _phase(pods: Sequence[Pod]) -> str:
    phases = {pod.phase for pod in pods}
    for phase in ("Failed", "Running", "Pending", "Unknown"):
        if phase in phases:
            return phase
    return "Succeeded"


def _pod(pod: Pod) -> PodEntry:
    finished_at = pod.finished_at
    if finished_at is not None and pod.started_at is not None:
        finished_at = max(finished_at, pod.started_at)  # the two times may be of different clocks
    return PodEntry(
        name=pod.name,
        node=pod.node,
        phase=pod.phase,
        exit_code=pod.exit_code,
        started_at=pod.started_at,
        finished_at=finished_at,
        message=pod.message,
    )


def running_intervals(pods: Iterable[Pod], until: datetime) -> list[Interval]:
    """Start and end of each pod's container; `until` is the end of one that still runs."""
    return [Interval(pod.started_at, pod.finished_at or until) for pod in pods if pod.started_at is not None]
