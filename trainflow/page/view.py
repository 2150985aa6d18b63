"""Data of a run for the templates: the answers to "which state, which loss, which node, what cost, when done"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from signal import Signals
from typing import Any

from trainflow.client.observe.utilization import Utilization
from trainflow.client.place import RunSummary
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.failures.error_table import error_table
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.page.cost import forecast
from trainflow.page.drawings import Drawing
from trainflow.page.empty import expectation
from trainflow.page.figures import figures, period
from trainflow.page.library import RunLibrary, RunNow
from trainflow.page.strip import strip
from trainflow.page.workflow import StateRow, state_rows, taken_edges
from trainflow.protocol.launcher_report import FIRST_SIGNAL_EXIT_CODE
from trainflow.record.comparison import Measured, differing_fields, scaling, value_text
from trainflow.record.pod_messages import cause
from trainflow.record.run_commands import pasted
from trainflow.record.situation import Kind, situation
from trainflow.record.steps import median_speeds
from trainflow.record.wording import count, duration, owner_facts, rate
from trainflow.report.page import STATUS_IN_WORDS
from trainflow.spec.run_spec import as_list
from trainflow.workflow.owner import UNKNOWN
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import RunStatus

MAX_SHORT_TABLE = 16
"""Maximum number of pods that the table shows in full; a longer one scrolls, below the numbers by phase."""

MAX_POD_ROWS = 64
"""Pods that are listed: of more, failed ones and the youngest come first."""


@dataclass(frozen=True, kw_only=True)
class PodRow:
    """A line of the pods' table."""

    pod: Pod
    label: str
    """Its name without the run id that all of them begin with."""
    ran_for: str
    exit_code: str
    note: str
    """The line by that its failure is judged; the log has the others."""
    has_log: bool
    busy: str = "–"
    """Utilization of its node, in per cent."""


@dataclass(frozen=True, kw_only=True)
class ScalingRow:
    """A line of a scaling study."""

    run_id: str
    num_nodes: int
    throughput: str
    throughput_of: str
    """Unit of the throughput, such as `sequences`."""
    per_node: str
    efficiency: str


@dataclass(frozen=True, kw_only=True)
class ListRow:
    """A line of the list of runs."""

    run_id: str
    status: str
    status_in_words: str
    started: str
    """Moment in UTC."""
    took: str
    owner: str
    """Who started it, in short; empty where that is not known."""
    team: str


def run_context(now: RunNow, drawing: Drawing, library: RunLibrary) -> dict[str, Any]:
    """Values of the template of a run's page."""
    snapshot = _with_commands(now.snapshot, library.words)
    states = state_rows(snapshot, drawing.layout)
    cost, utilization = forecast(snapshot), utilization_of(now)
    in_words = situation(snapshot)
    in_words = replace(in_words, to_do=pasted(in_words.to_do, snapshot.run_id, library.words))
    return {
        "run_id": snapshot.run_id,
        "name": snapshot.spec.get("name") or snapshot.run_id,
        "snapshot": snapshot,
        "status": snapshot.status.value,
        "situation": in_words,
        "is_running": snapshot.status is RunStatus.RUNNING,
        "period": period(snapshot),
        "owner_facts": owner_facts(snapshot),
        "no_steps": no_steps(snapshot),
        "figures": figures(snapshot, cost, utilization),
        "strip": strip(snapshot),
        "expectation": expectation(snapshot, library.usual_seconds()),
        "log_pod": log_pod(now),
        "artifacts_url": library.artifacts_url(snapshot.run_id),
        "command": library.hint(next_command(now), snapshot.run_id),
        "utilization": utilization,
        "busy_trouble": now.busy.trouble,
        "cost_basis": cost.basis if cost else "",
        "states": states,
        "layout": drawing.layout,
        "taken": taken_edges(snapshot, drawing.layout),
        "layout_note": drawing.note,
        "tones": {row.name: row for row in states},
        "pods": pod_rows(snapshot, _with_log(now), utilization),
        "has_rank_logs": _has_rank_logs(now),
        "pods_in_words": pods_in_words(snapshot),
        "hidden_pods": max(0, len(snapshot.pods) - MAX_POD_ROWS),
        "notices": notices(now),
        "evidence_has_log": snapshot.error is not None and snapshot.error.pod in _with_log(now),
        "can_stop": now.can_stop,
        "can_resume": now.can_resume,
        "continues": _continued(snapshot),
        "has_report": now.report is not None,
        "announcement": announcement(snapshot, states),
        "workflow_in_words": _workflow_in_words(states),
    }


def _with_commands(snapshot: RunState, words: Sequence[str]) -> RunState:
    error = snapshot.error
    if error is None:
        return snapshot
    return replace(snapshot, error=replace(error, what_to_do=pasted(error.what_to_do, snapshot.run_id, words)))


def log_pod(now: RunNow) -> str:
    """The pod whose log is shown first: the one whose lines decided, otherwise rank 0 of the newest training job.

    Empty where no log is at hand: one that has to be fetched is opened by the reader.
    """
    logs = set() if now.has_tails else set(now.logs())
    error = now.snapshot.error
    if error is not None and error.pod in logs:
        return error.pod
    with_log = [pod for pod in now.snapshot.pods if pod.name in logs]
    return max(with_log, key=_weight_of_log).name if with_log else ""


def _weight_of_log(pod: Pod) -> tuple[bool, int, bool, float]:
    began = pod.started_at.timestamp() if pod.started_at else 0.0
    return pod.stage == Stage.TRAINING, pod.attempt, pod.index == 0, began


def next_command(now: RunNow) -> str:
    """The command that most readers need next."""
    run = now.snapshot
    if run.status is RunStatus.RUNNING:
        return "logs" if any(pod.stage == Stage.TRAINING for pod in run.pods) else "status"
    if run.status is RunStatus.SUCCEEDED:
        return "artifacts"
    known = error_table().get(run.error.name) if run.error else None
    return "status" if known is not None and known.input_at_fault else "resume"


def notices(now: RunNow) -> list[str]:
    """Sentences about what is not as it should be, the error's own apart."""
    odd = [f"{title}: {count(amount, 'value')} not finite." for title, amount in now.known_curves.not_finite()]
    trouble = [now.snapshot.trouble] if now.snapshot.trouble else []
    return [*now.snapshot.warnings, *odd, *trouble]


def pod_rows(snapshot: RunState, logs: set[str], utilization: Utilization | None = None) -> list[PodRow]:
    """The pods of a run, oldest first."""
    pods = list(snapshot.pods)
    if len(pods) > MAX_POD_ROWS:
        newest = {pod.stage: pod.attempt for pod in sorted(pods, key=lambda pod: pod.attempt)}
        ranks0 = {pod.uid for pod in pods if pod.index == 0 and pod.attempt == newest[pod.stage]}
        by_weight = sorted(
            range(len(pods)),
            key=lambda at: (pods[at].uid not in ranks0, pods[at].phase != "Failed", pods[at].finished, -at),
        )
        pods = [pods[at] for at in sorted(by_weight[:MAX_POD_ROWS])]
    end = snapshot.ended_at or snapshot.observed_at
    by_node = utilization.by_node if utilization else {}
    return [
        PodRow(
            pod=pod,
            label=pod.name.removeprefix(f"{snapshot.run_id}-"),
            ran_for=duration(((pod.finished_at or end) - pod.started_at).total_seconds()) if pod.started_at else "–",
            exit_code=_exit_code_in_words(pod.exit_code),
            note=_note(pod, snapshot),
            has_log=pod.name in logs,
            busy=_node_utilization(pod, snapshot, by_node),
        )
        for pod in pods
    ]


def _note(pod: Pod, snapshot: RunState) -> str:
    if pod.phase == "Succeeded":
        return ""
    return cause(pod.name, pod.message or "", pod.exit_code, snapshot.error) or pod.reason or ""


def _exit_code_in_words(code: int | None) -> str:
    """`1`; `143 (SIGTERM)` of a process that a signal has ended, such as one of a gang that another one has left."""
    if code is None:
        return "–"
    with suppress(ValueError):
        return f"{code} ({Signals(code - FIRST_SIGNAL_EXIT_CODE).name})"
    return str(code)


def _node_utilization(pod: Pod, snapshot: RunState, by_node: Mapping[str, float]) -> str:
    """Utilization of a pod's node, now or while the run trained; a dash if it is unknown."""
    is_measured = not pod.finished if snapshot.nodes_busy is None else pod.stage == Stage.TRAINING
    return f"{by_node[pod.node]:.0f} %" if pod.node and pod.node in by_node and is_measured else "–"


def utilization_of(now: RunNow) -> Utilization | None:
    """Utilization of the nodes; for a run that has ended, that of its training."""
    busy = now.snapshot.nodes_busy
    return Utilization(of=busy.of, by_node=busy.by_node) if busy else now.busy.utilization


def pods_in_words(snapshot: RunState) -> str:
    """Number of pods by stage and phase, for the newest attempts; empty if the table shows every pod."""
    if len(snapshot.pods) <= MAX_SHORT_TABLE:
        return ""
    stages = dict.fromkeys(pod.stage for pod in reversed(snapshot.pods))
    return "; ".join(f"{stage}: {_phase_counts(stage, snapshot.pods)}" for stage in stages)


def _phase_counts(stage: str, pods: Sequence[Pod]) -> str:
    newest = max(pod.attempt for pod in pods if pod.stage == stage)
    phases = Counter(pod.phase for pod in pods if (pod.stage, pod.attempt) == (stage, newest))
    told = ", ".join(f"{amount:,} {phase.lower()}" for phase, amount in phases.most_common())
    return f"{told}, attempt {newest}" if newest > 1 else told


def _with_log(now: RunNow) -> set[str]:
    return {*now.logs(), *(pod.name for pod in now.snapshot.pods if now.has_log(pod))}


def _has_rank_logs(now: RunNow) -> bool:
    """Whether a log may be asked for by its rank: not on Slurm, whose jobs have one log. The spec comes with the first
    events of a run."""
    compute = now.snapshot.spec.get("compute")
    backend = compute.get("backend", "job") if isinstance(compute, Mapping) else "job"
    return now.fetched is not None and backend in KUBERNETES_KINDS


def field_rows(snapshots: Sequence[RunState]) -> list[tuple[str, list[str]]]:
    """Fields whose values differ between the specs of runs, with the value of each run."""
    differing = differing_fields([snapshot.spec for snapshot in snapshots])
    return [(name, [value_text(value) or "–" for value in values]) for name, values in differing.items()]


def scaling_rows(snapshots: Sequence[RunState]) -> list[ScalingRow]:
    """The scaling efficiency of runs that differ only in their number of nodes; empty for others."""
    study = scaling(
        [
            Measured(
                run_id=snapshot.run_id,
                spec=snapshot.spec,
                instance_type=snapshot.instance_type,
                speeds=median_speeds(snapshot.steps),
            )
            for snapshot in snapshots
        ]
    )
    return [
        ScalingRow(
            run_id=run.run_id,
            num_nodes=run.num_nodes,
            throughput=rate(run.throughput),
            throughput_of=run.throughput_of,
            per_node=rate(run.per_node),
            efficiency=f"{run.efficiency:.0%}",
        )
        for run in study
    ]


def list_rows(summaries: Sequence[RunSummary], now: datetime) -> list[ListRow]:
    """The lines of the list of runs."""
    return [
        ListRow(
            run_id=summary.run_id,
            status=summary.status.value,
            status_in_words=_listed_status(summary),
            started=f"{summary.started_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
            took=duration(((summary.ended_at or now) - summary.started_at).total_seconds()),
            owner=summary.owner.short if summary.owner not in (None, UNKNOWN) else "",
            team=summary.team or "",
        )
        for summary in summaries
    ]


def _listed_status(summary: RunSummary) -> str:
    """`Succeeded with warnings`, `Failed: OutOfMemory, 2 restarts`."""
    status, note = STATUS_IN_WORDS[summary.status], summary.note
    words = (
        f"{status} {note}"
        if summary.status is RunStatus.SUCCEEDED and note
        else f"{status}: {note}"
        if note
        else status
    )
    return f"{words}, {count(summary.restarts, 'restart')}" if summary.restarts else words


def announcement(snapshot: RunState, states: Sequence[StateRow]) -> str:
    """Sentence that a screen reader reads when it changes: the situation, the state, and the end."""
    in_words = situation(snapshot)
    if snapshot.status is not RunStatus.RUNNING:
        return f"The run has ended: {in_words.headline}. {in_words.sentence}".rstrip()
    current = next((row.name for row in states if row.tone == "current"), None)
    kind = f"{in_words.kind.value}: the run" if in_words.kind is not Kind.TRAINING else "The run"
    return f"{kind} is in the state {current}." if current else "The run is running."


def no_steps(snapshot: RunState) -> str:
    """Reason why a run ended without a curve."""
    if any(pod.stage == Stage.TRAINING for pod in snapshot.pods):
        return "No step was found in the log. The section progress of a spec says how its program prints them."
    return "The run ended before its training began."


def _continued(snapshot: RunState) -> str | None:
    """Id of the run that this one continues, or None. The input of an execution may not be a spec."""
    earlier = as_list(snapshot.spec.get("resume_from"))
    return str(earlier[0]) if isinstance(earlier, list) and earlier else None


def _workflow_in_words(states: Sequence[StateRow]) -> str:
    visited = [row for row in states if row.tone != "idle"]
    current = next((row.name for row in states if row.tone == "current"), None)
    failed = ", ".join(row.name for row in states if row.tone == "failed")
    parts = [f"State machine: {len(visited)} of {len(states)} states entered"]
    if current:
        parts.append(f"the current one is {current}")
    if failed:
        parts.append(f"failed: {failed}")
    return ", ".join(parts) + ". The same is in the table of states."
