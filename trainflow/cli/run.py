"""One run from its spec's file to its record and report, at a place that executes it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console

from trainflow.cli.follow import follow, summarize
from trainflow.cli.spec_file import read_spec
from trainflow.client.files import write_record, write_report
from trainflow.client.place import Place, PlaceOptions, open_place
from trainflow.errors import named_errors
from trainflow.models.run_record import RunRecord, RunStatus
from trainflow.record.failure import explained

EXIT_STATUS = {RunStatus.SUCCEEDED: 0, RunStatus.ABORTED: 130}
"""130 is 128 + SIGINT, as shells have it."""

ABORTED = explained("Aborted", "The run was stopped from the keyboard.")


def run_at(
    place_name: str, spec_path: Path, overrides: Sequence[Path], *, options: PlaceOptions, console: Console
) -> int:
    """Run a spec, with what files of overrides say instead, at a place.

    Returns:
        The command's exit status.

    Raises:
        TrainflowError: If the input is at fault or the place cannot be used; nothing was created.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    spec = read_spec(spec_path, overrides)
    opened: AbstractContextManager[Place] = open_place(place_name, options)
    with opened as place:
        run_id = place.start(spec)
        folder = options.out / run_id
        record = follow_to_end(place, run_id, folder=folder, console=console)
    _point_latest(options.out, run_id)
    summarize(record, console, report=folder / "report.html")
    return _exit_status(record)


def follow_to_end(place: Place, run_id: str, *, folder: Path, console: Console) -> RunRecord:
    """Follow a run to its end, and leave its record and report in `folder`. Ctrl-C stops the run."""
    aborted = None
    with place.follow(run_id, log_dir=folder / "logs") as followed:
        try:
            follow(followed, console, followed.is_finished)
        except KeyboardInterrupt:
            aborted = ABORTED
            console.print("Stopping: the run's executions, jobs and nodes …", style="yellow")
            place.stop(run_id, reason=ABORTED)
    record = followed.record(aborted=aborted)
    write_record(record, folder / "run.json")
    write_report(record, followed.steps(), folder / "report.html")
    return record


def _interrupt_once(_number: int, _frame: object) -> None:
    """Ctrl-C and `kill` stop the run; a second one must not stop the stopping."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _point_latest(out: Path, run_id: str) -> None:
    """Let `out/latest` lead to the newest run, at no moment to nothing."""
    link, fresh = out / "latest", out / f".latest-{run_id}"
    fresh.symlink_to(run_id)
    fresh.replace(link)


def _exit_status(record: RunRecord) -> int:
    if record.status in EXIT_STATUS:
        return EXIT_STATUS[record.status]
    error = named_errors().get(record.error.name) if record.error else None
    return 2 if error is not None and error.input_at_fault else 1
