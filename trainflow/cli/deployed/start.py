"""Start a run in a deployment, with its code, and follow it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from trainflow.cli.attended import LEAVE, STOP, ask
from trainflow.cli.exit_status import ABORTED
from trainflow.cli.follow import follow, summarize
from trainflow.cli.page import page_beside
from trainflow.cli.run import exit_status, stopped_by
from trainflow.cli.terminal import Console
from trainflow.client.code import pack
from trainflow.client.files import write_record
from trainflow.client.place import PlaceRefused, new_run_id
from trainflow.client.place_names import read_names
from trainflow.client.places import open_deployment
from trainflow.client.runs import DeployedRuns
from trainflow.client.spec_file import read_spec
from trainflow.client.whole_files import write_text


def run_in_deployment(
    place: str | None,
    spec_path: Path,
    overrides: Sequence[Path],
    *,
    out: Path,
    detach: bool,
    console: Console,
    page: bool = True,
) -> int:
    """Start the run of a spec, with what files of overrides say instead. Its code is packed and uploaded first.

    Args:
        place: Name of the deployment; None for the default.
        spec_path: The spec's file.
        overrides: Files with fields that differ.
        out: Folder for the folder of the run's record, report and logs.
        detach: Print the run's id on the last line and leave it to itself.
        console: Where to show the run.
        page: Whether it is shown on a page of this machine, too.

    Returns:
        The command's exit status.

    Raises:
        TrainflowError: If the spec, its code or the place is at fault; nothing was started.
    """
    spec = read_spec(spec_path, overrides)
    code = pack(spec.workload, beside=spec_path.parent, leave_out=(out,))
    if code is not None and code.note is not None:
        console.print(f"Note: {code.note}.", markup=False, highlight=False)
    runs = open_deployment(read_names().named(place))
    run_id = new_run_id(spec, datetime.now(UTC))
    try:
        runs.start(spec, code=code, run_id=run_id)
    except KeyboardInterrupt:
        print(f"Stopped while {run_id} was being started; this tells whether it runs:")
        print(f"trainflow status {run_id} --place {runs.name}")
        return ABORTED
    return follow_started(runs, run_id, out=out, detach=detach, console=console, page=page)


def follow_started(
    runs: DeployedRuns, run_id: str, *, out: Path, detach: bool, console: Console, page: bool = True
) -> int:
    """Follow a run that has just been started to its end, or leave it to itself.

    Args:
        runs: The runs of the deployment.
        run_id: The run.
        out: Folder for the folder of the run's record, report and logs.
        detach: Print the run's id on the last line and leave it to itself.
        console: Where to show the run.
        page: Whether it is shown on a page of this machine, too.

    Returns:
        The command's exit status.
    """
    if detach:
        print(f"Started in {runs.name}: trainflow watch {run_id} --place {runs.name}", file=sys.stderr)
        print(run_id)
        return 0
    console.print(f"Started {run_id} in {runs.name}; Ctrl-C asks whether to stop it.", highlight=False)
    try:
        return _followed(runs, run_id, out=out, console=console, page=page)
    except KeyboardInterrupt:  # before or after the view, which asks
        return _left(runs, run_id)
    except PlaceRefused:  # who may start runs may not always read them
        print(f"The run is not followed; this tells how it goes: trainflow status {run_id} --place {runs.name}")
        raise


def _followed(runs: DeployedRuns, run_id: str, *, out: Path, console: Console, page: bool) -> int:
    folder = out / run_id
    with (
        page_beside(runs, console, name=runs.name, words=runs.hint_words) if page else nullcontext() as shown,
        runs.follow(run_id, log_dir=folder / "logs") as followed,
    ):
        if shown is not None:
            shown.show(run_id, followed, log_dir=folder / "logs")
        while True:
            try:
                follow(followed, console, followed.is_finished)
                break
            except KeyboardInterrupt:
                answer = _asked()
            if answer == LEAVE:
                return _left(runs, run_id)
            if answer == STOP:
                runs.stop(run_id, reason=stopped_by())
                break
    record = runs.record(run_id)
    write_record(record, folder / "run.json")
    summarize(record, console, report=write_text(folder / "report.html", runs.report(run_id)), words=runs.hint_words)
    return exit_status(record)


def _left(runs: DeployedRuns, run_id: str) -> int:
    print(f"The run goes on: trainflow watch {run_id} --place {runs.name}")
    return 0


def _asked() -> str:
    """Choice after Ctrl-C. Without a terminal or an answer the run continues: it may cost days to begin again."""
    return ask(otherwise=LEAVE) if sys.stdin.isatty() and sys.stdout.isatty() else LEAVE
