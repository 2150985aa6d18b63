"""`trainflow watch`."""

# Each command imports what it needs; see trainflow/cli/main.py.

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainflow.cli.exit_status import FAILED
from trainflow.cli.operate.place import HOME, OUT, Home, Local, Out, PlaceName, RunId, open_reader
from trainflow.cli.operate.written import written_report
from trainflow.client.hints import deployed_hint, local_hint

if TYPE_CHECKING:
    from trainflow.cli.terminal import Console
    from trainflow.client.place import RunReader


def watch(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show the run on a page of this machine, too.")] = True,
) -> None:
    """Follow RUN in the terminal until it ends, and then say how it ended.

    Ctrl-C ends the watching, not the run.

    Exit status: 0 it has succeeded or goes on, 1 it has not succeeded.
    """
    from trainflow.cli.follow import summarize
    from trainflow.cli.terminal import Console
    from trainflow.workflow.run_status import RunStatus

    reader = open_reader(local=local, place=place, out=out, home=home)
    found, console = reader.describe(run), Console()
    if not found.status.is_over:
        try:
            _follow(reader, found.run_id, console, folder=out if local else None, page=page)
        except KeyboardInterrupt:
            here = functools.partial(local_hint, out=out, home=home)
            hint = here("status", found.run_id) if local else deployed_hint("status", found.run_id, place=place)
            console.print(f"The run goes on: {hint}", soft_wrap=True)
            return
    record = reader.final_record(found.run_id)
    summarize(record, console, report=written_report(reader, found.run_id, out), words=reader.hint_words)
    if record.status not in (RunStatus.SUCCEEDED, RunStatus.RUNNING):
        raise typer.Exit(FAILED)


def _follow(reader: RunReader, run_id: str, console: Console, *, folder: Path | None, page: bool) -> None:
    from contextlib import nullcontext

    from trainflow.cli.follow import follow
    from trainflow.cli.page import page_beside
    from trainflow.client.owned_folder import OwnedFolder

    with OwnedFolder("trainflow-watch-") as logs:
        log_dir = Path(logs)
        name = "" if folder else reader.name
        with (
            page_beside(reader, console, folder=folder, name=name, words=reader.hint_words)
            if page
            else nullcontext() as shown,
            reader.follow(run_id, log_dir=log_dir) as followed,
        ):
            if shown is not None:
                shown.show(run_id, followed, log_dir=log_dir)
            follow(followed, console, followed.is_finished)
