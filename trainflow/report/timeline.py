"""States and pods of the run over time. Geometry for the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainflow.record.run_states import own_execution
from trainflow.record.wording import count, duration
from trainflow.report.charts import Tick
from trainflow.report.scales import Scale, time_ticks
from trainflow.workflow.run_record import Pod, RunRecord, StateVisit

INSTANT_SECONDS = 0.05
"""A state that took less in all is named below the timeline instead of drawn in it: choices, mostly."""

MAX_POD_ROWS = 24
"""Pods drawn; of more, rank 0 of each stage and those that failed come first."""

MIN_PERCENT = 0.25
"""Narrowest bar, so that a short visit is still seen."""

WATCH_LAP = "PollJob"
"""The state that every lap of a watch window passes once."""


@dataclass(frozen=True)
class Bar:
    """A stretch of time in a row."""

    left: float
    """Per cent of the axis."""
    width: float
    title: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """A state or a pod."""

    label: str
    title: str
    """The label in full."""
    kind: str
    """`state`, `failed` or `open` for states; the stage for pods."""
    bars: list[Bar]
    total: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Rows of states, and below them rows of pods, on one axis."""

    ticks: list[Tick]
    states: list[Row]
    pods: list[Row]
    instants: list[str]
    """States that took next to no time."""
    hidden_pods: int


def timeline(record: RunRecord, *, now: datetime | None = None) -> Timeline:
    """The run's course; of a run that goes on, until `now`."""
    end = record.ended_at or now or _last_moment(record)
    seconds = max(0.001, (end - record.started_at).total_seconds())
    axis = _Axis(record.started_at, end, Scale(0.0, seconds))
    rows, instants = _state_rows(record, axis)
    pods = [(stage, pod) for stage, job in record.jobs.items() for pod in job.pods if pod.started_at]
    shown = _most_telling(record, pods)
    return Timeline(
        ticks=[Tick(axis.scale.percent(tick), _tick_label(tick)) for tick in time_ticks(seconds, at_most=8)],
        states=rows,
        pods=[_pod_row(record.run_id, stage, pod, axis) for stage, pod in shown],
        instants=instants,
        hidden_pods=len(pods) - len(shown),
    )


@dataclass(frozen=True)
class _Axis:
    start: datetime
    end: datetime
    scale: Scale

    def bar(self, begin: datetime, end: datetime | None, what: str) -> Bar:
        since, until = (((moment or self.end) - self.start).total_seconds() for moment in (begin, end))
        left, right = self.scale.percent(since), self.scale.percent(until)
        width = max(MIN_PERCENT, right - left)
        title = f"{what}: {duration(until - since)}, from {duration(since)} after the start"
        return Bar(round(min(left, 100 - width), 3), round(width, 3), title)


def _state_rows(record: RunRecord, axis: _Axis) -> tuple[list[Row], list[str]]:
    visits: dict[str, list[StateVisit]] = {}
    for visit in record.states:
        if visit.execution == own_execution(record):
            visits.setdefault(visit.name, []).append(visit)
    rows, instants = [], []
    for name, stays in visits.items():
        seconds = sum(((stay.exited_at or axis.end) - stay.entered_at).total_seconds() for stay in stays)
        if seconds < INSTANT_SECONDS:
            instants.append(name)
        else:
            rows.append(_state_row(name, stays, seconds, axis, laps=_laps_within(record, stays, axis.end)))
    return rows, instants


def _state_row(name: str, stays: Sequence[StateVisit], seconds: float, axis: _Axis, *, laps: int) -> Row:
    retries = sum(stay.attempts - 1 for stay in stays)
    notes = [
        count(len(stays), "visit") if len(stays) > 1 else "",
        count(retries, "retry").replace("retrys", "retries") if retries else "",
        count(laps, "lap") if laps else "",
    ]
    return Row(
        label=name,
        title=name,
        kind="open" if any(stay.exited_at is None for stay in stays) else "state",
        bars=[axis.bar(stay.entered_at, stay.exited_at, name) for stay in stays],
        total=duration(seconds),
        note=", ".join(note for note in notes if note),
    )


def _laps_within(record: RunRecord, stays: Sequence[StateVisit], end: datetime) -> int:
    """Laps that watch windows made during these stays."""
    own = own_execution(record)
    laps = [visit.entered_at for visit in record.states if visit.name == WATCH_LAP and visit.execution != own]
    return sum(stay.entered_at <= lap < (stay.exited_at or end) for lap in laps for stay in stays)


def _pod_row(run_id: str, stage: str, pod: Pod, axis: _Axis) -> Row:
    began = pod.started_at or axis.start
    seconds = ((pod.finished_at or axis.end) - began).total_seconds()
    return Row(
        label=pod.name.removeprefix(f"{run_id}-"),
        title=pod.name,
        kind="failed" if pod.phase == "Failed" else stage,
        bars=[axis.bar(began, pod.finished_at, f"{pod.name} ({pod.phase})")],
        total=duration(seconds),
        note="" if pod.phase == "Succeeded" else pod.phase.lower(),
    )


def _most_telling(record: RunRecord, pods: Sequence[tuple[str, Pod]]) -> list[tuple[str, Pod]]:
    """All pods of a small run; of a large one rank 0 and failed pods first, but in their usual order."""
    if len(pods) <= MAX_POD_ROWS:
        return list(pods)
    ranks0 = {job.rank0 for job in record.jobs.values()}
    by_weight = sorted(pods, key=lambda entry: (entry[1].name not in ranks0, entry[1].phase != "Failed"))
    chosen = {pod.name for _, pod in by_weight[:MAX_POD_ROWS]}
    return [(stage, pod) for stage, pod in pods if pod.name in chosen]


def _last_moment(record: RunRecord) -> datetime:
    moments = [record.started_at, *(visit.exited_at or visit.entered_at for visit in record.states)]
    moments += [pod.finished_at for job in record.jobs.values() for pod in job.pods if pod.finished_at]
    return max(moments)


def _tick_label(seconds: float) -> str:
    """`0`, `30 s`, `2 min`, `1 min 30 s`, `3 h`, `2 d`."""
    if seconds == 0:
        return "0"
    if seconds < 60:
        return f"{seconds:g} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts, rest = [], round(seconds)
    for unit, size in units:
        if rest >= size:
            parts.append(f"{rest // size} {unit}")
            rest %= size
    return " ".join(parts)
