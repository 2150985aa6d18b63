"""A run as one picture in the terminal: states, pods, progress of the training."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainflow.cli.follow.plain import is_told
from trainflow.cli.follow.staging import staging_line
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.observed.visit import Visit
from trainflow.record.last_lines import own_lines
from trainflow.record.situation import (
    Situation,
    Tone,
    age_in_words,
    last_step_age,
    present_seconds_left,
    present_speed,
    situation,
)
from trainflow.record.wording import clock, count, duration, estimated_cost, significant, size
from trainflow.workflow.run_record import RunStatus

STYLES: Mapping[Tone, str] = {
    Tone.ACTIVE: "bold cyan",
    Tone.WAITING: "bold blue",
    Tone.WARNING: "bold yellow",
    Tone.GOOD: "bold green",
    Tone.BAD: "bold red",
    Tone.NEUTRAL: "bold",
}
STYLE_OF_PHASE = {"Running": "cyan", "Succeeded": "green", "Failed": "red"}

MIN_STATE_ROWS = 4
MAX_EXPLANATION = 3
"""Most lines of the sentence about what the run does."""

MAX_POD_ROWS = 8
NUM_LAST_LINES = 12
TAIL_ROWS = 8
"""Most lines of the log while the run goes on, its heading and the blank line before it included."""

MIN_TAIL_ROWS = 5
FIXED_ROWS = 10
"""Lines of the picture besides states and pods: heading, blanks, table heads, progress, checkpoint and restarts."""


MARGIN = 1
"""Columns that are left empty on each side."""

BAR_WIDTH = 30
COURSE_SEPARATOR = " · "


def screen(snapshot: RunState, *, max_height: int = 40, max_width: int = 100) -> RenderableType:
    """The picture of a run, made to fit the terminal's height by leaving out the oldest states first.

    On a narrow terminal the facts of a line take several, and columns are left out.
    """
    width = max_width - 2 * MARGIN
    pods = _shown_pods(snapshot.pods)
    progress = _progress(snapshot, width) if snapshot.steps else []
    course = [Text(line, style="dim") for line in _packed(_course(snapshot), COURSE_SEPARATOR, width)]
    now = situation(snapshot)
    room = max_height - FIXED_ROWS - len(pods) - sum(max(len(part) - 1, 0) for part in (progress, course))
    explained = [] if snapshot.error else _explained(now, width, min(MAX_EXPLANATION, room - MIN_STATE_ROWS))
    room -= len(explained)
    tail = _log_tail(snapshot) if room >= MIN_STATE_ROWS + MIN_TAIL_ROWS else []
    states = _told_states(snapshot)
    tail_rows = min(TAIL_ROWS, max(MIN_TAIL_ROWS, room - len(states))) if tail else 0
    state_room = max(MIN_STATE_ROWS, room - tail_rows)
    parts: list[RenderableType] = [_heading(snapshot, now), *explained, Text(), _states(states, snapshot, state_room)]
    if pods:
        parts += [Text(), _pods(pods, snapshot, width)]
    if snapshot.staging:
        parts += [Text(), Text(staging_line(snapshot.staging), no_wrap=True, overflow="ellipsis")]
    if progress:
        parts += [Text(), *progress]
    parts += course
    if tail:
        parts += [Text(), tail[0], *tail[1:][2 - tail_rows :]]
    if snapshot.status is not RunStatus.RUNNING:
        parts += _last_lines(snapshot)
    parts += [line for warning in snapshot.warnings for line in (Text(), Text(f"warning: {warning}", style="yellow"))]
    if snapshot.trouble:
        parts += [Text(), Text(snapshot.trouble, style="yellow")]
    return Padding(Group(*parts), (0, MARGIN))


def _heading(snapshot: RunState, now: Situation) -> Text:
    heading = Text(no_wrap=True, overflow="ellipsis")
    heading.append(snapshot.run_id, style="bold")
    heading.append("  ")
    heading.append(now.headline, style=STYLES[now.tone])
    heading.append(f"  {clock(snapshot.seconds)}", style="dim")
    if snapshot.cost is not None and snapshot.cost.usd is not None:
        heading.append(f"  {estimated_cost(snapshot.cost.usd)}", style="dim")
    return heading


def _explained(now: Situation, width: int, max_lines: int) -> list[RenderableType]:
    text = " ".join(filter(None, [now.sentence, now.to_do]))
    lines = textwrap.wrap(text, width, max_lines=max_lines, placeholder=" …") if max_lines > 0 else []
    return [Text(line, style="dim") for line in lines]


@dataclass
class _Row:
    """One state in the list; a loop's laps are one row."""

    name: str
    seconds: float
    visits: int
    retries: int
    is_open: bool


def _told_states(snapshot: RunState) -> list[_Row]:
    return _state_rows([visit for visit in snapshot.states if is_told(visit, snapshot)], snapshot.observed_at)


def _states(rows: Sequence[_Row], snapshot: RunState, room: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1, no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True, min_width=11)
    table.add_column(style="dim")  # the only one that is made narrower: its cells are not wrapped either
    if len(rows) > room:
        table.add_row("", Text(f"{count(len(rows) - room, 'earlier state')}", style="dim"), "", "")
    for row in rows[-room:]:
        table.add_row(*_state_cells(row, snapshot))
    return table


def _state_rows(visits: Sequence[Visit], now: datetime) -> list[_Row]:
    rows: dict[str, _Row] = {}
    for visit in visits:
        row = rows.setdefault(visit.name, _Row(visit.name, 0.0, 0, 0, is_open=False))
        row.seconds += visit.seconds(now)
        row.visits += 1
        row.retries += visit.attempts - 1
        row.is_open = visit.exited_at is None
    return list(rows.values())


def _state_cells(row: _Row, snapshot: RunState) -> tuple[Text, Text, Text, Text]:
    ended_in_it = row.is_open and snapshot.status is not RunStatus.RUNNING
    if row.name == "RunFailed" or ended_in_it:
        mark, style = "✗", "red"
    elif row.is_open:
        mark, style = "●", "bold cyan"
    else:
        mark, style = "✓", "green"
    notes = [
        count(row.visits, "visit") if row.visits > 1 else "",
        f"{row.retries} × tried again" if row.retries else "",
        _inner_state(snapshot) if row.is_open and row.name.startswith("Watch") else "",
    ]
    name_style = "bold" if row.is_open else ""
    said = ", ".join(note for note in notes if note)
    return (
        Text(mark, style=style),
        Text(row.name, style=name_style),
        Text(duration(row.seconds), style="dim"),
        Text(said, no_wrap=True, overflow="ellipsis"),
    )


def _inner_state(snapshot: RunState) -> str:
    """The present state of the watch window."""
    inner = [visit for visit in snapshot.states if visit.execution != snapshot.execution and visit.exited_at is None]
    return inner[-1].name if inner else ""


def _shown_pods(pods: Sequence[Pod]) -> list[Pod]:
    """The pods that matter now: failed ones, then the youngest job's; in the order of their appearance."""
    by_weight = sorted(
        range(len(pods)), key=lambda place: (pods[place].phase != "Failed", pods[place].finished, -place)
    )
    return [pods[place] for place in sorted(by_weight[:MAX_POD_ROWS])]


@dataclass(frozen=True)
class _Column:
    """A column of the pods."""

    name: str
    cells: Sequence[Text]
    justify: Literal["left", "right"] = "left"

    @property
    def width(self) -> int:
        return max(len(self.name), *(cell.cell_len for cell in self.cells))


def _pods(pods: Sequence[Pod], snapshot: RunState, width: int) -> Table:
    columns = _fitting(_pod_columns(pods, snapshot), width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        is_first = column is columns[0]  # the only one that is made narrower
        table.add_column(Text(column.name, no_wrap=True), justify=column.justify, no_wrap=not is_first)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _pod_columns(pods: Sequence[Pod], snapshot: RunState) -> list[_Column]:
    hidden = len(snapshot.pods) - len(pods)
    names = [pod.name.removeprefix(f"{snapshot.run_id}-") for pod in pods]
    codes = ["" if pod.exit_code is None else str(pod.exit_code) for pod in pods]
    return [
        _Column(f"pod ({hidden} more)" if hidden else "pod", [_in_one_line(name) for name in names]),
        _Column("node", [Text(pod.node or "–") for pod in pods]),
        _Column("phase", [_phase(pod) for pod in pods]),
        _Column("exit", [Text(code, style="red" if code not in ("", "0") else "dim") for code in codes], "right"),
        _Column("ran for", [Text(_running_time(pod, snapshot.observed_at), style="dim") for pod in pods], "right"),
    ]


def _in_one_line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _fitting(columns: Sequence[_Column], width: int) -> list[_Column]:
    """The columns that have room side by side; the nodes are left out first, and then what a phase says already."""
    kept = list(columns)
    for name in ("node", "exit", "ran for"):
        if sum(column.width + 2 for column in kept) - 2 > width:
            kept = [column for column in kept if column.name != name]
    return kept


def _phase(pod: Pod) -> Text:
    waiting_for = f" ({pod.reason})" if pod.phase == "Pending" and pod.reason else ""
    return Text(pod.phase + waiting_for, style=STYLE_OF_PHASE.get(pod.phase, "yellow"))


def _running_time(pod: Pod, now: datetime) -> str:
    if pod.started_at is None:
        return ""
    return duration(((pod.finished_at or now) - pod.started_at).total_seconds())


def _progress(snapshot: RunState, width: int) -> list[RenderableType]:
    """The newest step, beside a bar where there is room for it, and otherwise in as many lines as it takes."""
    step, total = snapshot.steps[-1], snapshot.total_steps
    facts = _facts_of_step(snapshot)
    cells: list[RenderableType] = []
    if total:
        cells.append(ProgressBar(total=total, completed=min(step.step, total), width=BAR_WIDTH))
    if len(cells) * (BAR_WIDTH + 2) + sum(fact.cell_len + 2 for fact in facts) - 2 <= width:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(*cells, *facts)
        return [grid]
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + 2 + fact.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], "  ", fact)
        else:
            lines.append(fact)
    return list(lines)


def _facts_of_step(snapshot: RunState) -> list[Text]:
    step, total = snapshot.steps[-1], snapshot.total_steps
    facts = [Text(f"{step.step:,}/{total:,} steps" if total else f"step {step.step:,}", style="bold")]
    if step.loss is not None:
        facts.append(Text.assemble(("loss ", "dim"), significant(step.loss)))
    if (age := last_step_age(snapshot)) is not None:
        facts.append(Text(age_in_words(age), style="dim"))
    if speed := present_speed(snapshot):
        figure, _, unit = speed.partition(" ")
        facts.append(Text.assemble(figure, (f" {unit}", "dim")))
    left = present_seconds_left(snapshot)
    if left is not None and snapshot.status is RunStatus.RUNNING and total and step.step < total:
        ready_at = snapshot.observed_at + timedelta(seconds=left)
        facts.append(Text.assemble(clock(left), (f" left, until {at_time(ready_at, snapshot)}", "dim")))
    return facts


def _course(snapshot: RunState) -> list[str]:
    """`checkpoint of step 120, 2 min 05 s old, 1.2 GiB` and `1 restart, after WorkerFailed at step 61`."""
    said = []
    age = snapshot.checkpoint_age_seconds
    if age is not None:
        newest = snapshot.checkpoints[-1]
        weight = f", {size(newest.num_bytes)}" if newest.num_bytes is not None else ""
        said.append(f"checkpoint of step {newest.step:,}, {duration(age)} old{weight}")
    if snapshot.restarts:
        last = snapshot.restarts[-1]
        at = f" at step {last.last_step:,}" if last.last_step is not None else ""
        said.append(f"{count(len(snapshot.restarts), 'restart')}, after {last.error}{at}")
    if snapshot.avoided_nodes:
        said.append(f"avoids {', '.join(snapshot.avoided_nodes)}")
    return said


def _packed(facts: Sequence[str], separator: str, width: int) -> list[str]:
    """Lines with as many of the facts as they have room for; a fact that is longer than a line is wrapped."""
    lines: list[str] = []
    for fact in facts:
        if lines and len(lines[-1]) + len(separator) + len(fact) <= width:
            lines[-1] += separator + fact
        else:
            lines += textwrap.wrap(fact, max(width, 1), subsequent_indent="  " if width > 2 else "")
    return lines


def at_time(moment: datetime, snapshot: RunState) -> str:
    """The time of day in UTC, with the date if it is another day than the snapshot's."""
    moment = moment.astimezone(UTC)
    return f"{moment:%H:%M} UTC" if moment.date() == snapshot.observed_at.date() else f"{moment:%Y-%m-%d %H:%M} UTC"


def _last_lines(snapshot: RunState) -> list[RenderableType]:
    """Last lines of the first pod that failed; the other ones are mostly its victims."""
    failed = [pod for pod in snapshot.pods if pod.phase == "Failed" and snapshot.last_lines.get(pod.name)]
    if not failed or (snapshot.error is not None and snapshot.error.excerpt):  # the summary shows what decided
        return []
    first = min(failed, key=lambda pod: (pod.finished_at is None, pod.finished_at, pod.name))
    lines = own_lines(snapshot.last_lines[first.name])[-NUM_LAST_LINES:]
    heading = Text(f"last lines of {first.name}", style="dim")
    return [Text(), heading, *map(_log_line, lines)]


def _log_tail(snapshot: RunState) -> list[Text]:
    """A heading and the newest lines of the log that shows the run's progress."""
    if snapshot.status is not RunStatus.RUNNING or snapshot.log_tail is None or not snapshot.log_tail[1]:
        return []
    pod, lines = snapshot.log_tail
    return [Text(f"log of {pod.removeprefix(f'{snapshot.run_id}-')}", style="dim"), *map(_log_line, lines)]


def _log_line(line: str) -> Text:
    """A line as a terminal shows it: of a progress bar, which is written over, its newest state."""
    text = Text.from_ansi(f"  {line.rstrip().rpartition(chr(13))[2]}", no_wrap=True, overflow="ellipsis")
    text.rstrip()
    return text
