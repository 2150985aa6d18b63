"""The state machine as a drawing: its working states as boxes, and what became of each in a run.

Choices, waits and states that only pass values on are left out, and the arrows lead through them: what takes time and
what can fail remains. A wait counts to the state that it leads to, which polls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainflow.observed.run_state import RunState
from trainflow.observed.visit import Visit
from trainflow.record.wording import count, duration
from trainflow.workflow.run_record import RunStatus

SILENT_TYPES = frozenset({"Choice", "Pass", "Wait"})
"""Types of states without a box."""

BOX_WIDTH, BOX_HEIGHT = 158.0, 36.0
ROW, GUTTER = 46.0, 44.0
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP = 30.0, 22.0, 4.0
"""Units of the drawing; a unit is a pixel at its natural size."""

TRACKS = {"onwards": 0.25, "error": 0.5, "back": 0.75}
"""Positions of the arrows between the columns, as shares of the gutter: each kind on one line, so that they do not
cross the drawing as a fan."""

BRIEF_LETTERS = 24
"""Letters that a box has room for below the state's name."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A state's place in the drawing."""

    name: str
    comment: str
    column: int
    """0 for the way to success, 1 for detours and for what follows a failure."""
    row: int

    @property
    def x(self) -> float:
        """Left edge."""
        return MARGIN_LEFT + self.column * (BOX_WIDTH + GUTTER)

    @property
    def y(self) -> float:
        """Upper edge."""
        return MARGIN_TOP + self.row * ROW


@dataclass(frozen=True)
class Arrow:
    """A transition between two boxes."""

    source: str
    target: str
    path: str
    """SVG path."""
    on_error: bool


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Boxes and arrows of a state machine."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    leads_to: Mapping[str, str]
    """The state with a box that each wait leads to."""
    width: float
    height: float


@dataclass(frozen=True, kw_only=True)
class StateRow:
    """Course of a state in a run."""

    name: str
    comment: str = ""
    tone: str
    """`done`, `current`, `failed` or `idle`."""
    seconds: float = 0.0
    time: str = ""
    """Time in the state, in words; empty if it was not entered."""
    note: str = ""

    @property
    def brief(self) -> str:
        """Time and note, as far as a box has room for them."""
        whole = f"{self.time} · {self.note}" if self.note else self.time
        return whole if len(whole) <= BRIEF_LETTERS else self.time


@dataclass(frozen=True)
class _Edge:
    target: str
    on_error: bool


def layout(definition: Mapping[str, Any]) -> Layout:
    """Arrange the states of a definition in Amazon States Language.

    The way to success runs down the left column in the order of the states in the text. A state that only leads back
    stands to the right of the state that leads to it; what follows a failure stands below those.
    """
    states: Mapping[str, Mapping[str, Any]] = definition["States"]
    drawn = [name for name, state in states.items() if state["Type"] not in SILENT_TYPES]
    order = {name: place for place, name in enumerate(drawn)}
    edges = {name: _edges(states, name) for name in drawn}
    ends_well = _reaching(
        edges, {name for name in drawn if states[name]["Type"] == "Succeed" or states[name].get("End")}
    )
    main, detours, failure = _columns(drawn, edges, ends_well, order)
    rows = {name: (0, row) for row, name in enumerate(main)}
    taken = -1
    for name in detours:
        before = [rows[source][1] for source in main if any(edge.target == name for edge in edges[source])]
        taken = max(taken + 1, max(before, default=0))
        rows[name] = (1, taken)
    below = max(taken + 1, len(main) - len(failure))
    rows.update((name, (1, below + place)) for place, name in enumerate(failure))
    boxes = {
        name: Box(name=name, comment=str(states[name].get("Comment", "")), column=rows[name][0], row=rows[name][1])
        for name in drawn
    }
    lowest = max((box.row for box in boxes.values()), default=0)
    return Layout(
        boxes=tuple(boxes.values()),
        arrows=tuple(_arrows(boxes, edges)),
        leads_to={name: _beyond(states, name) for name, state in states.items() if state["Type"] == "Wait"},
        width=MARGIN_LEFT + 2 * BOX_WIDTH + GUTTER + MARGIN_RIGHT,
        height=2 * MARGIN_TOP + lowest * ROW + BOX_HEIGHT,
    )


def state_rows(snapshot: RunState, drawn: Layout | None) -> list[StateRow]:
    """Outcome of each state, in the order of the definition. Without a definition, only of the visited states."""
    own = [visit for visit in snapshot.states if visit.execution in ("", snapshot.execution)]
    leads_to = drawn.leads_to if drawn else {}
    comments = {box.name: box.comment for box in drawn.boxes} if drawn else {}
    visits: dict[str, list[Visit]] = {name: [] for name in comments}
    for visit in own:
        name = leads_to.get(visit.name, visit.name)
        if name in comments or drawn is None:
            visits.setdefault(name, []).append(visit)
    current = _current(snapshot, own, set(visits), leads_to)
    failed = _failed(snapshot, own, drawn)
    return [
        _row(name, stays, comments.get(name, ""), is_current=name == current, failed=failed, snapshot=snapshot)
        for name, stays in visits.items()
    ]


def _failed(snapshot: RunState, own: Sequence[Visit], drawn: Layout | None) -> set[str]:
    """The state that ended a failed run, and the last state on the way to success before it."""
    if snapshot.status is not RunStatus.FAILED or drawn is None:
        return {"RunFailed"}
    way = {box.name for box in drawn.boxes if box.column == 0}
    last = next((name for visit in reversed(own) if (name := drawn.leads_to.get(visit.name, visit.name)) in way), None)
    return {"RunFailed", *([last] if last else [])}


def _row(
    name: str, stays: Sequence[Visit], comment: str, *, is_current: bool, failed: set[str], snapshot: RunState
) -> StateRow:
    if not stays:
        return StateRow(name=name, comment=comment, tone="current" if is_current else "idle")
    end = snapshot.ended_at or snapshot.observed_at
    seconds = sum(stay.seconds(end) for stay in stays)
    working = [stay for stay in stays if stay.name == name]
    retries = sum(stay.attempts - 1 for stay in working)
    notes = (
        count(len(working), "visit") if len(working) > 1 else "",
        f"{retries} × tried again" if retries else "",
        _inner_state(snapshot) if is_current and name.startswith("Watch") else "",
    )
    return StateRow(
        name=name,
        comment=comment,
        tone=_tone(stays, snapshot, is_current=is_current, has_failed=name in failed),
        seconds=seconds,
        time=duration(seconds),
        note=", ".join(note for note in notes if note),
    )


def _tone(stays: Sequence[Visit], snapshot: RunState, *, is_current: bool, has_failed: bool) -> str:
    running = snapshot.status is RunStatus.RUNNING
    if is_current and running:
        return "current"
    failed = has_failed or (stays[-1].exited_at is None and not running)
    return "failed" if failed and snapshot.status is not RunStatus.SUCCEEDED else "done"


def _current(snapshot: RunState, own: Sequence[Visit], drawn: set[str], leads_to: Mapping[str, str]) -> str | None:
    """The box that is lit: the state's own, a wait's poll, otherwise the last one before."""
    if snapshot.status is not RunStatus.RUNNING or snapshot.state is None:
        return None
    lit = leads_to.get(snapshot.state, snapshot.state)
    if lit in drawn:
        return lit
    return next((visit.name for visit in reversed(own) if visit.name in drawn), None)


def _inner_state(snapshot: RunState) -> str:
    """The present state of the watch window."""
    inner = [visit for visit in snapshot.states if visit.execution != snapshot.execution and visit.exited_at is None]
    return inner[-1].name if inner else ""


def _edges(states: Mapping[str, Mapping[str, Any]], name: str) -> list[_Edge]:
    """Arrows to other boxes; one over a Catch counts only where no other leads there."""
    plain = dict.fromkeys(
        target for following in _followers(states[name]) for target in _boxes_behind(states, following)
    )
    caught = dict.fromkeys(
        target
        for catcher in states[name].get("Catch", ())
        for target in _boxes_behind(states, catcher["Next"])
        if target not in plain
    )
    return [_Edge(target, on_error=False) for target in plain if target != name] + [
        _Edge(target, on_error=True) for target in caught if target != name
    ]


def _followers(state: Mapping[str, Any]) -> list[str]:
    named = [state.get("Next"), *(rule["Next"] for rule in state.get("Choices", ())), state.get("Default")]
    return [name for name in named if name]


def _boxes_behind(states: Mapping[str, Mapping[str, Any]], name: str) -> Iterator[str]:
    """The states with a box that come next, past those without one."""
    seen, open_names = set(), [name]
    while open_names:
        here = open_names.pop(0)
        if here in seen:
            continue
        seen.add(here)
        if states[here]["Type"] in SILENT_TYPES:
            open_names += _followers(states[here])
        else:
            yield here


def _beyond(states: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return next(_boxes_behind(states, name), name)


def _reaching(edges: Mapping[str, Sequence[_Edge]], goals: set[str]) -> set[str]:
    """The states with an error-free path to a goal."""
    found = set(goals)
    while True:
        more = {
            name
            for name, arrows in edges.items()
            if name not in found and any(arrow.target in found for arrow in arrows if not arrow.on_error)
        }
        if not more:
            return found
        found |= more


def _columns(
    drawn: Sequence[str], edges: Mapping[str, Sequence[_Edge]], ends_well: set[str], order: Mapping[str, int]
) -> tuple[list[str], list[str], list[str]]:
    """States on the way to success, detours that lead back to it, and what follows a failure."""

    leading_back = set[str]()
    for name in reversed(drawn):  # a detour may have several states
        onwards = [edge.target for edge in edges[name] if not edge.on_error]
        if onwards and all(order[target] < order[name] or target in leading_back for target in onwards):
            leading_back.add(name)
    detours = [name for name in drawn if name in ends_well and name in leading_back]
    main = [name for name in drawn if name in ends_well and name not in detours]
    return main, detours, [name for name in drawn if name not in ends_well]


def _arrows(boxes: Mapping[str, Box], edges: Mapping[str, Sequence[_Edge]]) -> Iterator[Arrow]:
    for name, arrows in edges.items():
        for edge in arrows:
            path = _path(boxes[name], boxes[edge.target], on_error=edge.on_error)
            yield Arrow(name, edge.target, path, edge.on_error)


def _path(source: Box, target: Box, *, on_error: bool) -> str:
    """A line between neighbours, an arc beside a column past others, a shared track between the columns."""
    start, stop = source.y + BOX_HEIGHT / 2, target.y + BOX_HEIGHT / 2
    if source.column != target.column:
        begin, end = (box.x + (BOX_WIDTH if box.column == 0 else 0.0) for box in (source, target))
        share = TRACKS["back" if target.column == 0 else "error" if on_error else "onwards"]
        return f"M{begin:g} {start:g}H{MARGIN_LEFT + BOX_WIDTH + GUTTER * share:g}V{stop:g}H{end:g}"
    if target.row == source.row + 1:
        return f"M{source.x + BOX_WIDTH / 2:g} {source.y + BOX_HEIGHT:g}V{target.y:g}"
    rows = abs(target.row - source.row)
    outer = source.x if source.column == 0 else source.x + BOX_WIDTH
    far = outer - min(26.0, 8.0 + 3.0 * rows) if source.column == 0 else outer + min(18.0, 8.0 + 3.0 * rows)
    return f"M{outer:g} {start:g}C{far:g} {start:g} {far:g} {stop:g} {outer:g} {stop:g}"


def taken_edges(snapshot: RunState, drawn: Layout | None) -> frozenset[tuple[str, str]]:
    """The pairs of boxes that the run has passed one after the other."""
    if drawn is None:
        return frozenset()
    names = {box.name for box in drawn.boxes}
    own = (visit.name for visit in snapshot.states if visit.execution in ("", snapshot.execution))
    boxes = [name for visited in own if (name := drawn.leads_to.get(visited, visited)) in names]
    return frozenset(pairwise(boxes))
