"""`trainflow resume`: a run of its own that continues an ended one from its checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trainflow.cli.exit_status import ABORTED, STOPPED_BEFORE
from trainflow.cli.operate.place import (
    HOME,
    OUT,
    Faults,
    Home,
    Local,
    Out,
    PlaceChoice,
    PlaceName,
    RunId,
    WallsOption,
    open_reader,
    print_to,
    require_time_scale,
    require_twin,
    twin_arguments,
)
from trainflow.record.run_commands import pasted

TIME_SCALE = 30.0


def resume(
    run: RunId,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of its spec that differs; may be given more than once.", metavar="F=V"),
    ] = None,
    from_step: Annotated[
        int | None,
        typer.Option(min=0, help="Resume from RUN's newest checkpoint at or below this step.", metavar="N"),
    ] = None,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start it and print its id on the last line; it goes on by itself.")
    ] = False,
    time_scale: Annotated[
        float, typer.Option(min=1, help="With --local: waits take 1/X of their time.", metavar="X")
    ] = TIME_SCALE,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="With --local: the cluster that RUN used instead of the twin's own.", show_default=False),
    ] = None,
    image_root: Annotated[
        Path | None,
        typer.Option(help="With --local: folder that stands for the image. Default: that of RUN.", show_default=False),
    ] = None,
    faults: Faults = None,
    walls: WallsOption = None,
    announce_to: Annotated[int | None, typer.Option(hidden=True)] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show the run on a page of this machine, too.")] = True,
) -> None:
    """Start a new run that continues RUN from its checkpoints.

    RUN was stopped or has failed; one that has succeeded needs --set, such as a larger number of steps. The new run has
    an id, a folder and a record of its own, whose spec names RUN. It is followed to its end as by `trainflow run`.

    If the loss of RUN was NaN or infinite at its end, checkpoints after its newest step with a finite loss are passed
    over.

    Exit status: as of `trainflow run`; 2 if RUN still runs or its checkpoints are missing.
    """
    if local and place is not None:
        raise PlaceChoice("Give --local for the twin or --place for a deployment, not both.")
    require_twin(local=local, faults=faults, walls=walls)
    require_time_scale(time_scale)
    if kubeconfig is not None and not kubeconfig.is_file():
        raise PlaceChoice(f"--kubeconfig {kubeconfig}: there is no such file.")
    if local:
        _require_continuable(run, out=out, home=home, changes=bool(settings))
    from trainflow.spec.changes import parse_settings

    changes = parse_settings(settings or ())
    if not local:
        raise typer.Exit(_in_deployment(place, run, changes, from_step, out=out, detach=detach, page=page))
    if announce_to is None and (detach or (sys.stdin.isatty() and sys.stdout.isatty())):
        from trainflow.cli.attended import run_attended, run_detached

        options: list[tuple[str, object]] = [("--out", out), ("--home", home), ("--time-scale", time_scale)]
        options += [("--set", setting) for setting in settings or ()]
        options += [("--from-step", from_step)] if from_step is not None else []
        options += [("--kubeconfig", kubeconfig)] if kubeconfig else []
        options += [("--image-root", image_root)] if image_root else []
        words = ["resume", run, "--local", *(str(word) for option in options for word in option)]
        words += [*twin_arguments(faults=faults, walls=walls), *([] if page else ["--no-page"])]
        raise typer.Exit(run_detached(words, out=out, home=home) if detach else run_attended(words, out=out, home=home))
    from trainflow.cli.attended import Attendant
    from trainflow.cli.run import resume_at
    from trainflow.cli.terminal import Console
    from trainflow.client.place import LOCAL, PlaceOptions

    console = Console()
    place_options = PlaceOptions(
        out=out,
        home=home,
        time_scale=time_scale,
        kubeconfig=kubeconfig,
        image_root=image_root,
        faults=faults,
        walls=walls,
        busy=console.status,
        say=print_to(console),
    )
    attendant = Attendant(announce_to) if announce_to is not None else None
    try:
        status = resume_at(
            LOCAL,
            run,
            changes,
            from_step=from_step,
            options=place_options,
            console=console,
            attendant=attendant,
            page=page,
        )
    except KeyboardInterrupt:
        console.print(STOPPED_BEFORE)
        status = ABORTED
    raise typer.Exit(status)


def _require_continuable(run: str, *, out: Path, home: Path, changes: bool) -> None:
    """Refuse a run of this machine by its status, before the twin is imported."""
    from trainflow.client.continuable import CannotContinue, require_continuable

    reader = open_reader(local=True, place=None, out=out, home=home)
    found = reader.describe(run)
    try:
        require_continuable(found.run_id, found.status, changes=changes)
    except CannotContinue as refused:
        raise CannotContinue(pasted(str(refused), found.run_id, reader.hint_words)) from None


def _in_deployment(
    place: str | None,
    run_id: str,
    changes: dict[str, Any],
    from_step: int | None,
    *,
    out: Path,
    detach: bool,
    page: bool,
) -> int:
    from trainflow.cli.deployed.start import follow_started
    from trainflow.cli.terminal import Console
    from trainflow.client.continuing import resume_note
    from trainflow.client.place_names import read_names
    from trainflow.client.places import open_deployment

    runs = open_deployment(read_names().named(place))
    spec, console = runs.spec_continuing(run_id, changes, from_step=from_step), Console()
    if (note := resume_note(spec)) is not None:
        console.print(note, markup=False, highlight=False)
    return follow_started(runs, runs.start(spec), out=out, detach=detach, console=console, page=page)
