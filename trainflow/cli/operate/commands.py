"""`trainflow list`, `status`, `watch`, `logs`, `metrics`, `stop`, `compare`, `report`, `artifacts` and others."""

# Each command imports what it needs; see trainflow/cli/main.py.

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer

from trainflow.cli.exit_status import ABORTED, FAILED, refuse
from trainflow.cli.json_output import VERSION, AsJson, print_json
from trainflow.cli.operate.completion import run_ids
from trainflow.cli.operate.costs import costs
from trainflow.cli.operate.export import export
from trainflow.cli.operate.grid import grid
from trainflow.cli.operate.place import (
    HOME,
    OUT,
    Home,
    Local,
    Out,
    PlaceName,
    RunId,
    open_reader,
)
from trainflow.cli.operate.plan import plan
from trainflow.cli.operate.resume import resume
from trainflow.cli.operate.sweep import sweep
from trainflow.cli.operate.top import top
from trainflow.cli.operate.watch import watch
from trainflow.cli.operate.written import written_report
from trainflow.cli.plugins import leave_plugins
from trainflow.errors import TrainflowError
from trainflow.protocol.plain_text import plain_text
from trainflow.record.run_commands import pasted

if TYPE_CHECKING:
    from trainflow.client.place import LogRequest, RunReader
    from trainflow.observed.run_state import RunState

_P = ParamSpec("_P")
_R = TypeVar("_R")

COMPARISON = "comparison.html"
"""Name of the page that compares several runs, below `--out`."""


class Export(StrEnum):
    """Formats of `trainflow metrics`."""

    CSV = "csv"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    reading = (
        plan,
        list_,
        status,
        watch,
        logs,
        metrics,
        compare,
        report,
        artifacts,
        messages,
        costs,
        tensorboard,
        export,
        places,
    )
    for command in (*reading, top, exec_, stop, resume, grid, sweep):
        app.command(command.__name__.rstrip("_"))(_plain_errors(command))


def list_(
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    grid: Annotated[str | None, typer.Option(help="Only runs of this grid.", metavar="ID", show_default=False)] = None,
    owners: Annotated[
        bool, typer.Option("--owners", help="With owners and teams, for which every run's record is read.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs, the newest first."""
    from trainflow.cli.operate.shown import list_text, listed, with_owners

    reader = open_reader(local=local, place=place, out=out, home=home)
    runs = reader.runs()
    if owners:
        runs = with_owners(runs, reader.records())
    if grid is not None:
        from trainflow.client.grid import members

        runs = members(runs, grid)[::-1]
    if as_json:
        print_json([listed(run) for run in runs])
    elif runs:
        typer.echo(list_text(runs, datetime.now(UTC)))
    else:
        typer.echo("No runs yet.", err=True)


def status(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """Show the state, the newest step and the pods of RUN.

    Exit status: 0 if it runs or has succeeded, 1 if it has failed, 2 if the run does not exist.
    """
    leave_plugins()
    from trainflow.cli.operate.shown import details_json, details_text
    from trainflow.workflow.run_status import RunStatus

    reader = open_reader(local=local, place=place, out=out, home=home)
    found = reader.details(run)
    if as_json:
        print_json(details_json(found))
    else:
        typer.echo(details_text(found, datetime.now(UTC), reader.hint_words))
    if found.status.is_over and found.status is not RunStatus.SUCCEEDED:
        raise typer.Exit(FAILED)


def logs(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    rank: Annotated[int, typer.Option(min=0, help="Node of the gang whose output to print.")] = 0,
    pod: Annotated[str | None, typer.Option(help="A pod by its name instead.", show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until the run ends.")] = False,
    since: Annotated[
        str | None, typer.Option(help="From this time on: 10m, 2h, or 2026-11-22T08:00.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each line, for programs.")] = False,
) -> None:
    """Print the log of RUN's training.

    With --follow it goes on through restarts, and ends with the run or with the --pod.

    Exit status: 0; with --follow 1 if the run has ended and has not succeeded.
    """
    from trainflow.client.place import LogRequest
    from trainflow.client.since import parse_since

    try:
        begin = parse_since(since, datetime.now(UTC)) if since else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
    request = LogRequest(
        rank=rank, pod=pod, since=begin, follow=follow, notify=lambda sentence: typer.echo(sentence, err=True)
    )
    reader = open_reader(local=local, place=place, out=out, home=home)
    told = _line_writer(reader.describe(run).run_id, request) if as_json else plain_text
    with _until_interrupted():
        for line in reader.log(run, request):
            print(told(line), flush=follow)
        if follow:
            _tell_outcome(reader.details(run), reader.hint_words)


def _line_writer(run_id: str, request: LogRequest) -> Callable[[str], str]:
    """Formatter of lines for `logs --json`."""
    of = {"run_id": run_id, "rank": request.rank if request.pod is None else None, "pod": request.pod}
    return lambda line: json.dumps({**of, "line": line})


def _tell_outcome(run: RunState, words: tuple[str, ...]) -> None:
    """Print the outcome of a run whose log was followed. The exit status reports it as well."""
    from trainflow.workflow.run_status import RunStatus

    if run.status is RunStatus.RUNNING:
        typer.echo(f"The pod has ended; the run {run.run_id} goes on.", err=True)
        return
    typer.echo(f"The run {run.run_id} has ended: {run.status.value}.", err=True)
    if run.error:
        to_do = pasted(run.error.what_to_do, run.run_id, words)
        typer.echo(plain_text(f"{run.error.name}: {run.error.message}\n{to_do}".rstrip()), err=True)
    if run.status is not RunStatus.SUCCEEDED:
        raise typer.Exit(FAILED)


def exec_(
    run: RunId,
    command: Annotated[
        list[str], typer.Argument(help="Program and its words, behind `--`.", metavar="CMD...", show_default=False)
    ],
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    rank: Annotated[int, typer.Option(min=0, help="Node of the gang.")] = 0,
    pod: Annotated[str | None, typer.Option(help="A pod by its name instead.", show_default=False)] = None,
) -> None:
    """Run a command in the container of one of RUN's pods: `trainflow exec RUN -- neuron-top`.

    Prints its output; the command runs without input and without a terminal. Your own credentials have to allow it in
    the cluster.

    Exit status: the command's own; 2 if it was not run.
    """
    from trainflow.client.place import LogRequest

    def write(is_error: bool, printed: bytes) -> None:
        stream = sys.stderr if is_error else sys.stdout
        stream.buffer.write(printed)
        stream.flush()

    request = LogRequest(rank=rank, pod=pod)
    with _until_interrupted():
        raise typer.Exit(
            open_reader(local=local, place=place, out=out, home=home).execute(run, request, command, write)
        )


def metrics(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    export: Annotated[Export, typer.Option(help="Format.")] = Export.CSV,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --export json.")] = False,
) -> None:
    """Print the figures of RUN's steps.

    While the run goes on, and in a deployment, there are at most a thousand of them, evenly spaced.
    """
    from trainflow.cli.operate.shown import metrics_rows

    names, rows = metrics_rows(open_reader(local=local, place=place, out=out, home=home).steps(run))
    if as_json or export is Export.JSON:
        print_json([{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows])
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *rows])
    typer.echo(text.getvalue(), nl=False)


def stop(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
) -> None:
    """Stop RUN, and release what it holds. Nothing happens if it has ended."""
    from trainflow.record.failure import explained

    reader = open_reader(local=local, place=place, out=out, home=home)
    found = reader.describe(run)
    if found.status.is_over:
        typer.echo(f"{found.run_id} has ended already: {found.status.value}.")
        return
    reader.stop(found.run_id, reason=explained("Aborted", "The run was stopped with `trainflow stop`."))
    typer.echo(f"Stopped {found.run_id}.")


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Two runs or more, or the id of a grid.", metavar="RUN", show_default=False, autocompletion=run_ids
        ),
    ],
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """Compare runs and the specs that they began with.

    Shows how they ended, their figures, and the differences of their specs. For runs that differ only in the number of
    their nodes, it shows how the throughput grows with it. Two runs are columns; more are a line each.
    """
    from trainflow.cli.operate.compared import comparison_text, terminal_width
    from trainflow.cli.operate.shown import details_json
    from trainflow.record.comparison import differing_fields, measured, scaling
    from trainflow.record.run_states import state_of_record
    from trainflow.report.comparison import facts, fields

    reader = open_reader(local=local, place=place, out=out, home=home)
    records = [reader.record(run_id) for run in runs for run_id in _expanded(reader, run)]
    if as_json:
        document = {
            "version": VERSION,
            "runs": [details_json(state_of_record(record)) for record in records],
            "differing_fields": differing_fields([record.spec for record in records]),
            "scaling": [asdict(run) for run in scaling([measured(record) for record in records])],
        }
        print_json(document)
        return
    rows = [*facts(records, now=datetime.now(UTC)), *fields(records)]
    shown = [(name, [_short(value) for value in values]) for name, values in rows]
    typer.echo(comparison_text([record.run_id for record in records], shown, terminal_width()))


def _expanded(reader: RunReader, name: str) -> list[str]:
    """The ids of a grid's runs if the name is a grid's; otherwise the name."""
    from trainflow.client.grid import GRID_ID, members

    found = members(reader.runs(), name) if GRID_ID.fullmatch(name) else []
    return [run.run_id for run in found] or [name]


def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="A run, or several to compare.", metavar="RUN", show_default=False, autocompletion=run_ids),
    ],
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs' records instead, for programs.")] = False,
) -> None:
    """Write RUN's report to a file and print its path. While the run goes on it shows what is known now.

    Of several runs, a page with all of them side by side.
    """
    reader = open_reader(local=local, place=place, out=out, home=home)
    if as_json:
        print_json({"version": VERSION, "runs": [reader.record(run).model_dump(mode="json") for run in runs]})
        return
    path = written_report(reader, runs[0], out) if len(runs) == 1 else _written_comparison(reader, runs, out)
    if open_it:
        typer.launch(str(path))
    typer.echo(path)


def _written_comparison(reader: RunReader, runs: list[str], out: Path) -> Path:
    from trainflow.client.whole_files import write_text
    from trainflow.report.comparison import render_comparison

    records = [reader.record(run) for run in runs]
    there = [record.run_id for record in records if (out / record.run_id / "report.html").is_file()]
    page = render_comparison(records, now=datetime.now(UTC), reports=there)
    return write_text(out / COMPARISON, page)


def artifacts(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    pull: Annotated[
        Path | None, typer.Option(help="Folder to copy them to.", metavar="FOLDER", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what RUN has published, or copy it to a folder.

    Exit status: 0; 1 if a part was not copied, because its name leads out of the folder.
    """
    from trainflow.cli.operate.copies import copied
    from trainflow.cli.operate.shown import table
    from trainflow.record.wording import size

    reader = open_reader(local=local, place=place, out=out, home=home)
    found = reader.artifacts(reader.describe(run).run_id)
    if pull is not None:
        paths = []
        for artifact in found:
            paths.append(copied(reader, artifact, pull))
            if paths[-1] is not None:
                typer.echo(paths[-1])
        if None in paths:
            raise typer.Exit(FAILED)
    elif as_json:
        rows = [{"name": one.name, "bytes": one.size, "modified_at": one.modified_at.isoformat()} for one in found]
        print_json(rows)
    elif found:
        typer.echo(table(("FILE", "SIZE"), [(one.name, size(one.size)) for one in found]))
    else:
        typer.echo("The run has published nothing yet.", err=True)


def messages(run: RunId, local: Local = False, place: PlaceName = None, out: Out = OUT, home: Home = HOME) -> None:
    """Print the messages that were sent about RUN.

    The twin keeps them as mails in the run's folder. A deployment sends them, and keeps none.
    """
    reader = open_reader(local=local, place=place, out=out, home=home)
    found = reader.messages(reader.describe(run).run_id)
    if not found:
        typer.echo("No message has been sent about the run.", err=True)
    for message in found:
        text = pasted(message.text, reader.describe(run).run_id, reader.hint_words)
        typer.echo(f"Subject: {message.subject}\nDate: {message.sent_at:%Y-%m-%d %H:%M:%S} UTC\n\n{text}\n")


def tensorboard(
    runs: Annotated[
        list[str],
        typer.Argument(help="One run or more.", metavar="RUN", show_default=False, autocompletion=run_ids),
    ],
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
) -> None:
    """Open TensorBoard on what runs have published.

    Ctrl-C ends it.
    """
    import shutil
    import subprocess

    from trainflow.client.owned_folder import OwnedFolder

    program = shutil.which("tensorboard") or shutil.which("tensorboard", path=str(Path(sys.executable).parent))
    if program is None:
        raise typer.BadParameter("TensorBoard is not installed: pip install tensorboard.")
    from trainflow.cli.operate.copies import copied

    reader = open_reader(local=local, place=place, out=out, home=home)
    with OwnedFolder("trainflow-events-") as folder, _until_interrupted():
        fetched = 0
        for run in runs:
            run_id = reader.describe(run).run_id
            events = [one for one in reader.artifacts(run_id) if "tfevents" in one.name]
            if not events:
                typer.echo(f"{run_id} has published no TensorBoard events.", err=True)
            fetched += sum(copied(reader, one, Path(folder) / run_id) is not None for one in events)
        if not fetched:
            refuse("There is nothing to show; `trainflow metrics` prints the figures that the log has.")
        done = subprocess.run([program, "--logdir", folder, "--host", "127.0.0.1"], check=False)
    if done.returncode != 0:
        raise typer.Exit(done.returncode)


def places(as_json: AsJson = False) -> None:
    """List the places where runs execute.

    They are the twin, the names of the configuration file, and the deployments of the Region.
    """
    from trainflow.cli.operate.shown import table
    from trainflow.client.place_names import NamedPlace, config_file, read_names
    from trainflow.client.places import deployments

    names = read_names()
    rows = [("local", "the twin, on this machine: --local")]
    rows += [
        (one.name, f"deployment {one.deployment}{f' in {one.region}' if one.region else ''}, from {config_file()}")
        for one in names.places.values()
    ]
    trouble = None
    try:
        session = NamedPlace(name="", deployment="").session()
        known = {one.deployment for one in names.places.values()}
        rows += [(name, f"deployment in {session.region_name}") for name in deployments(session) if name not in known]
    except TrainflowError as error:
        trouble = str(error)
    if as_json:
        print_json([{"name": name, "what": what} for name, what in rows])
    else:
        typer.echo(table(("PLACE", ""), rows))
    if trouble:
        typer.echo(f"Deployments were not listed: {trouble}", err=True)


def _plain_errors(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """One sentence for a person instead of a traceback, and the exit status for what was handed in."""

    @wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return command(*args, **kwargs)
        except TrainflowError as error:
            refuse(str(error))
        except BrokenPipeError:  # `trainflow logs RUN | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None

    return run


@contextmanager
def _until_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(ABORTED) from None


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
