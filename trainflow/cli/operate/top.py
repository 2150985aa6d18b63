"""`trainflow top`: all runs that go on, on one screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainflow.cli.json_output import VERSION, AsJson, print_json
from trainflow.cli.operate.place import HOME, OUT, Home, Local, Out, PlaceName, open_reader

if TYPE_CHECKING:
    from trainflow.client.place import RunReader
    from trainflow.observed.run_state import RunState

REFRESH_SECONDS = 5.0
"""Default time between two readings: the workflow itself polls no more often than every 20 seconds."""

NUM_AT_ONCE = 8
"""Runs that are asked for at the same time: Step Functions answers some ten requests a second for an account."""

HEADER = ("RUN", "STATE", "STEP", "LOSS", "SPEED", "LEFT", "COST", "RUNNING FOR")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run that goes on."""

    run_id: str
    started_at: datetime
    details: RunState | None
    trouble: str | None = None
    """Reason why the other fields are unknown."""

    def as_json(self) -> dict[str, Any]:
        """As `trainflow status --json`, or what is known instead."""
        from trainflow.cli.operate.shown import details_json

        if self.details is not None:
            return details_json(self.details)
        started_at = self.started_at.isoformat()
        return {"run_id": self.run_id, "status": "RUNNING", "started_at": started_at, "trouble": self.trouble}


def top(
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    interval: Annotated[float, typer.Option(min=1, help="Seconds between two readings.")] = REFRESH_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Show all running runs: situation, step, loss, speed, time left, cost so far.

    On a terminal it is read again until Ctrl-C; otherwise, and with --json, once. The cost is an estimate: the hours of
    the run's nodes at their on-demand price, which a run of the twin does not cost.
    """
    reader = open_reader(local=local, place=place, out=out, home=home)
    if as_json:
        print_json({"version": VERSION, "runs": [row.as_json() for row in active_runs(reader)]})
    elif sys.stdout.isatty():
        _refreshed(reader, interval)
    else:
        typer.echo(table_text(active_runs(reader), datetime.now(UTC)))


def active_runs(reader: RunReader) -> list[Row]:
    """The runs that go on, the newest first."""
    from concurrent.futures import ThreadPoolExecutor

    from trainflow.client.place import RunSummary
    from trainflow.errors import TrainflowError
    from trainflow.workflow.run_status import RunStatus

    def row(run: RunSummary) -> Row | None:
        try:
            details = reader.details(run.run_id)
        except TrainflowError as error:
            return Row(run_id=run.run_id, started_at=run.started_at, details=None, trouble=str(error))
        if details.status is not RunStatus.RUNNING:  # it ended meanwhile
            return None
        return Row(run_id=run.run_id, started_at=run.started_at, details=details)

    running = [run for run in reader.runs() if run.status is RunStatus.RUNNING]
    with ThreadPoolExecutor(NUM_AT_ONCE, thread_name_prefix="top") as pool:
        return [found for found in pool.map(row, running) if found is not None]


def table_text(rows: Sequence[Row], now: datetime) -> str:
    """The table for people."""
    from trainflow.cli.operate.shown import table

    if not rows:
        return "No run goes on."
    return table(HEADER, [_cells(row, now) for row in rows])


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    from trainflow.record.situation import present_seconds_left, present_speed, situation
    from trainflow.record.wording import duration, significant

    running_for, found = duration((now - row.started_at).total_seconds()), row.details
    if found is None:
        return (row.run_id, f"not known: {row.trouble}", "", "", "", "", "", running_for)
    step = "" if found.step is None else f"{found.step:,}{f'/{found.total_steps:,}' if found.total_steps else ''}"
    loss = "" if found.loss is None else significant(found.loss)
    left = duration(seconds_left) if (seconds_left := present_seconds_left(found)) else ""
    cost = "" if found.cost_usd is None else f"{found.cost_usd:,.2f} USD"
    now_in_words = situation(found)
    speed = present_speed(found)
    return (row.run_id, now_in_words.headline, step, loss, speed, left, cost, running_for)


def _refreshed(reader: RunReader, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from trainflow.cli.terminal import Console

    def screen(rows: Sequence[Row]) -> Text:
        now = datetime.now(UTC)
        return Text(f"{now.astimezone():%H:%M:%S}  Ctrl-C ends this view.\n\n{table_text(rows, now)}")

    try:
        with Live(screen(active_runs(reader)), console=Console(), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(screen(active_runs(reader)), refresh=True)
    except KeyboardInterrupt:
        return
