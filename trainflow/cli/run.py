"""One run from its spec's file to its record and report, at a place that executes it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainflow.cli.attended import Attendant
from trainflow.cli.exit_status import ABORTED, BAD_INPUT, FAILED
from trainflow.cli.follow import follow, summarize
from trainflow.cli.page import page_beside
from trainflow.cli.terminal import Console
from trainflow.client.code import pack
from trainflow.client.files import write_record, write_report, write_steps
from trainflow.client.hints import local_words
from trainflow.client.place import Place, PlaceOptions, open_place
from trainflow.client.spec_file import read_spec
from trainflow.errors import LossNotFinite
from trainflow.failures.error_table import Group, error_table
from trainflow.record.failure import explained
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus

EXIT_STATUS = {RunStatus.SUCCEEDED: 0, RunStatus.ABORTED: ABORTED}
"""Exit status by the end of the run; any other one depends on the run's error."""

LOSS_NOT_FINITE = 3
"""Exit status for a training that diverged, as that of our trainer."""

LIMIT_REACHED = 4
"""Exit status for a run that ended at a limit of its spec, and can be resumed."""

REPORT = "report.html"
"""Name of the report in the run's folder."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop the run, unless the command was started with one of them ignored, as `nohup` does."""


def run_at(
    place_name: str,
    spec_path: Path,
    overrides: Sequence[Path],
    *,
    options: PlaceOptions,
    console: Console,
    attendant: Attendant | None = None,
    page: bool = True,
) -> int:
    """Run a spec, with what files of overrides say instead, at a place.

    Args:
        place_name: The place.
        spec_path: The spec's file.
        overrides: Files with fields that differ.
        options: What a person says about the place.
        console: Where to show the run.
        attendant: The link to the process that shows the run in a terminal, if it is another one.
        page: Whether the run is shown on a page, too.

    Returns:
        The command's exit status.

    Raises:
        TrainflowError: If the input is at fault or the place cannot be used; nothing was created.
    """
    interrupts = _Interrupts()
    spec = read_spec(spec_path, overrides)
    options = replace(options, spec_folder=spec_path.parent)
    code = pack(spec.workload, beside=spec_path.parent, leave_out=(options.out, options.home))
    if code is not None and code.note is not None:
        console.print(f"Note: {code.note}.", markup=False, highlight=False)
    return _run_to_end(
        place_name,
        lambda place: place.start(spec, code=code),
        interrupts,
        options=options,
        console=console,
        attendant=attendant,
        page=page,
    )


def resume_at(
    place_name: str,
    run_id: str,
    changes: Mapping[str, Any],
    *,
    from_step: int | None = None,
    options: PlaceOptions,
    console: Console,
    attendant: Attendant | None = None,
    page: bool = True,
) -> int:
    """Run on from the checkpoints of an ended run; see `run_at`.

    Args:
        place_name: The place.
        run_id: The ended run.
        changes: Fields of its spec that differ.
        from_step: Highest step of the checkpoint; None for the choice of the place.
        options: What a person says about the place.
        console: Where to show the run.
        attendant: The link to the process that shows the run in a terminal, if it is another one.
        page: Whether the run is shown on a page, too.
    """
    return _run_to_end(
        place_name,
        lambda place: place.resume(run_id, changes=changes, from_step=from_step),
        _Interrupts(),
        options=options,
        console=console,
        attendant=attendant,
        page=page,
    )


def _run_to_end(
    place_name: str,
    start: Callable[[Place], str],
    interrupts: _Interrupts,
    *,
    options: PlaceOptions,
    console: Console,
    attendant: Attendant | None,
    page: bool,
) -> int:
    record, opened = None, open_place(place_name, options)
    words = local_words(out=options.out, home=options.home)
    try:
        with opened as place:
            run_id = start(place)
            interrupts.wait()
            folder = options.out / run_id
            if attendant is not None:
                attendant.announce(run_id, folder)
            record = follow_to_end(
                place,
                run_id,
                folder=folder,
                console=console,
                attendant=attendant,
                page=page,
                begin=interrupts.go_on,
                words=words,
            )
        _point_latest(options.out, run_id)
    except OSError as error:
        if record is None:
            raise
        _say_unwritten(error, console)
    report = folder / REPORT
    summarize(record, console, report=report if report.is_file() else None, words=words)
    return exit_status(record)


def follow_to_end(
    place: Place,
    run_id: str,
    *,
    folder: Path,
    console: Console,
    attendant: Attendant | None = None,
    page: bool = False,
    begin: Callable[[], None] = lambda: None,
    words: tuple[str, ...] = (),
) -> RunRecord:
    """Follow a run to its end, and leave its record, steps and report in `folder`. Ctrl-C stops the run.

    Args:
        place: Where it runs.
        run_id: The run.
        folder: Its folder.
        console: Where to show it.
        attendant: The link to the process that shows the run in a terminal, if it is another one.
        page: Whether it is shown on a page, too.
        begin: Called once an interruption stops the run with a record.
        words: Options of a command that name the place.
    """
    aborted, may_show = None, attendant.wait_until_shown if attendant else None
    # The page ends last, so that it shows the end.
    with page_beside(place, console, folder=folder.parent, words=words) if page else nullcontext() as shown:
        with place.follow(run_id, log_dir=folder / "logs") as followed:
            if shown is not None:
                shown.show(run_id, followed, log_dir=folder / "logs")
            try:
                begin()
                follow(followed, console, followed.is_finished, may_show=may_show)
            except KeyboardInterrupt as interrupt:
                aborted = stopped_by(*interrupt.args)
                console.print("Stopping: the run's executions, jobs and nodes …", style="yellow")
                place.stop(run_id, reason=aborted)
        record = followed.record(aborted=aborted)
        try:
            write_record(record, folder / "run.json")
            write_steps(followed.steps(), folder / "steps.json")
            write_report(record, followed.steps(), folder / REPORT, words=words)
        except OSError as error:  # how the run ended is still to be told
            _say_unwritten(error, console)
    return record


def _say_unwritten(error: OSError, console: Console) -> None:
    where = error.filename or "Something that the run leaves"
    sentence = f"{where} was not written: {error.strerror}."
    console.print(sentence, style="yellow", markup=False, highlight=False, soft_wrap=True)


class _Interrupts:
    """Ctrl-C, `kill` and a closed terminal stop the run; a second one must not stop the stopping."""

    def __init__(self) -> None:
        self._waits, self._received = False, 0
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def wait(self) -> None:
        """Remember an interruption until `go_on`: the run has begun, and nothing follows it yet."""
        self._waits = True

    def go_on(self) -> None:
        """Let interruptions through, and the one that came meanwhile."""
        self._waits = False
        if self._received:
            raise KeyboardInterrupt(self._received)

    def _handle(self, received: int, _frame: object) -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        self._received = received
        if not self._waits:
            raise KeyboardInterrupt(received)


def stopped_by(received: int = signal.SIGINT) -> RunError:
    """The error of a run that a signal stopped."""
    by = "from the keyboard" if received == signal.SIGINT else f"by the signal {signal.Signals(received).name}"
    return explained("Aborted", f"The run was stopped {by}.")


def _point_latest(out: Path, run_id: str) -> None:
    """Let `out/latest` lead to the newest run, at no moment to nothing."""
    link, fresh = out / "latest", out / f".latest-{run_id}"
    fresh.symlink_to(run_id)
    fresh.replace(link)


def exit_status(record: RunRecord) -> int:
    """The command's exit status for a run that ended so."""
    if record.status in EXIT_STATUS:
        return EXIT_STATUS[record.status]
    error = error_table().get(record.error.name) if record.error else None
    if error is None:
        return FAILED
    if error.name == LossNotFinite.__name__:
        return LOSS_NOT_FINITE
    if error.group is Group.LIMIT:
        return LIMIT_REACHED
    return BAD_INPUT if error.input_at_fault else FAILED
