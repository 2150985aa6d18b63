"""The way of a run as a strip of six to eight phases: what happened, for how long, and what is next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median

from trainflow.observed.run_state import RunState
from trainflow.observed.visit import Visit
from trainflow.record.situation import STATES, Kind
from trainflow.record.wording import count, duration
from trainflow.workflow.run_status import RunStatus

NAMES: Mapping[Kind, str] = {
    Kind.STARTING: "Checks",
    Kind.STAGING: "Data",
    Kind.WAITING_FOR_NODES: "Nodes",
    Kind.COMPILING: "Compilation",
    Kind.TRAINING: "Training",
    Kind.RECOVERING: "Recovery",
    Kind.STOPPING: "Stop",
    Kind.FINISHING: "Publication",
    Kind.FAILING: "Clean-up",
}
"""Name of the phase for each activity."""

ALWAYS = (Kind.STARTING, Kind.WAITING_FOR_NODES, Kind.TRAINING, Kind.FINISHING)
"""Phases of every run that goes well; those that are still to come are shown faintly."""

MAX_PHASES = 8
"""Most phases in the order of time; of more, those of one name become one."""

SHORTEST_SECONDS = 0.5
"""Shortest phase that is shown once it is over: empty look-ups and decisions are shorter."""

_KINDS = {state: kind for kind, states in STATES.items() for state in states}
_AFTER_THE_FAULT = (Kind.FAILING, Kind.RECOVERING)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of a run."""

    name: str
    tone: str
    """`done`, `lost` (it failed, and was begun again), `current`, `bad`, `stopped`, or `ahead` (still to come)."""
    seconds: float = 0.0
    note: str = ""

    @property
    def time(self) -> str:
        """Its length in words; empty for a phase that is still to come."""
        return "" if self.tone == "ahead" else duration(self.seconds)


def strip(run: RunState) -> list[Phase]:
    """The phases of a run in the order of time, the current one among them, and those that are still to come."""
    stretches = _stretches(run)
    kinds = [kind for kind, _ in stretches]
    fault = _place_of_fault(kinds, run)
    phases = [
        Phase(name=NAMES[kind], seconds=seconds, tone=_tone(at, kinds, fault, run))
        for at, (kind, seconds) in enumerate(stretches)
    ]
    shown = [phase for phase in phases if phase.tone != "done" or phase.seconds >= SHORTEST_SECONDS]
    if len(shown) > MAX_PHASES:
        shown = _by_name(shown)
    return [*shown, *_ahead(kinds, run)]


def usual_seconds(runs: Iterable[RunState]) -> dict[str, tuple[float, int]]:
    """Median length of each phase over runs that ended well, and the number of runs that had it."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.status is RunStatus.SUCCEEDED:
            for phase in _by_name(strip(run)):
                found.setdefault(phase.name, []).append(phase.seconds)
    return {name: (median(lengths), len(lengths)) for name, lengths in found.items()}


def _stretches(run: RunState) -> list[tuple[Kind, float]]:
    """Kinds of the successive states with the time in them; neighbours of one kind are one."""
    end = run.ended_at or run.observed_at
    own = [visit for visit in run.states if visit.execution in ("", run.execution) and visit.name in _KINDS]
    return [
        (kind, sum(visit.seconds(end) for visit in visits))
        for kind, visits in groupby(own, key=lambda visit: _kind(visit))
    ]


def _kind(visit: Visit) -> Kind:
    return _KINDS[visit.name]


def _place_of_fault(kinds: Sequence[Kind], run: RunState) -> int | None:
    """The phase that failed, of a run that ends or has ended so."""
    if run.status not in (RunStatus.FAILED, RunStatus.TIMED_OUT) and Kind.FAILING not in kinds[-1:]:
        return None
    before = [at for at, kind in enumerate(kinds) if kind not in _AFTER_THE_FAULT]
    return before[-1] if before else None


def _tone(at: int, kinds: Sequence[Kind], fault: int | None, run: RunState) -> str:
    last = len(kinds) - 1
    if at == fault:
        return "bad"
    if kinds[at + 1 : at + 2] == [Kind.RECOVERING]:
        return "lost"
    if at == last and run.status is RunStatus.RUNNING:
        return "current"
    return "stopped" if at == last and run.status is RunStatus.ABORTED else "done"


def _by_name(phases: Sequence[Phase]) -> list[Phase]:
    """One phase for all of a name, at the place of the first, with the tone of the last."""
    groups: dict[str, list[Phase]] = {}
    for phase in phases:
        if phase.tone != "ahead":
            groups.setdefault(phase.name, []).append(phase)
    return [
        replace(
            group[-1],
            seconds=sum(phase.seconds for phase in group),
            note=count(len(group), "time") if len(group) > 1 else "",
        )
        for group in groups.values()
    ]


def _ahead(kinds: Sequence[Kind], run: RunState) -> list[Phase]:
    if run.status.is_over or any(kind in (Kind.FAILING, Kind.STOPPING) for kind in kinds[-1:]):
        return []
    newest = next((ALWAYS.index(kind) for kind in reversed(kinds) if kind in ALWAYS), -1)
    if kinds[-1:] == [Kind.RECOVERING]:
        newest -= 1  # the phase that failed comes again
    return [Phase(name=NAMES[kind], tone="ahead") for kind in ALWAYS[newest + 1 :]]
