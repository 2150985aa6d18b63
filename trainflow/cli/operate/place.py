"""Which place a command is about: the options of all commands, and what opens it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainflow.cli.operate.completion import place_names, run_ids
from trainflow.client.hints import HOME as HOME
from trainflow.client.hints import OUT as OUT
from trainflow.client.place_variable import VARIABLE
from trainflow.errors import TrainflowError

if TYPE_CHECKING:
    from trainflow.cli.terminal import Console
    from trainflow.client.local_runs import LocalRuns
    from trainflow.client.runs import DeployedRuns

RunId = Annotated[
    str,
    typer.Argument(
        help="The run's id; with --local its beginning or `latest`, too.",
        show_default=False,
        metavar="RUN",
        autocompletion=run_ids,
    ),
]
Local = Annotated[bool, typer.Option("--local", help="Runs of the twin, on this machine.")]
PlaceName = Annotated[
    str | None,
    typer.Option(
        "--place",
        help="Deployment: a name from ~/.config/trainflow/config.toml, or its own. Default: "
        f"{VARIABLE}, the file's default, or the only deployment of the Region.",
        show_default=False,
        autocompletion=place_names,
    ),
]
Out = Annotated[Path, typer.Option(help="With --local: folder of the runs' folders.")]
Home = Annotated[Path, typer.Option(help="With --local: the twin's S3 buckets and shared file system.")]
Faults = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --local: a file of faults that the twin injects.", show_default=False),
]
WallsOption = Annotated[
    bool | None,
    typer.Option(
        "--walls/--no-walls",
        help="With --local: run pods as their user, with a root file system and mounts of their own. Default: where "
        "the machine allows it, a Linux that gives its users namespaces.",
        show_default=False,
    ),
]

LARGEST_TIME_SCALE = 10_000.0
"""A day of the state machines in nine seconds; what the twin itself does takes its own time."""


class PlaceChoice(TrainflowError):
    """The options name two places, or none that can be used."""

    input_at_fault = True


def print_to(console: Console) -> Callable[[str], None]:
    """Function that prints the sentences of a place as they are: unbroken, without markup."""
    return functools.partial(console.print, markup=False, highlight=False, soft_wrap=True)


def require_time_scale(value: float) -> None:
    """Raise `PlaceChoice` for a factor that would reduce the waits of the state machines to nothing."""
    if not value <= LARGEST_TIME_SCALE:  # NaN is no number to compare
        raise PlaceChoice(f"--time-scale {value:g}: give a number from 1 to {LARGEST_TIME_SCALE:,.0f}, such as 30.")


def require_twin(*, local: bool, faults: Path | None, walls: bool | None) -> None:
    """Raises `PlaceChoice` for options of the twin without it, and for a file of faults that is not there."""
    if faults is not None and not local:
        raise PlaceChoice("--faults: faults are injected in the twin only; give --local, too.")
    if faults is not None and not faults.is_file():
        raise PlaceChoice(f"--faults {faults}: there is no such file.")
    if walls is not None and not local:
        what = "pods of a deployment have walls in any case; give --local, too, or leave it out."
        raise PlaceChoice(f"--walls, --no-walls: {what}")


def twin_arguments(*, faults: Path | None, walls: bool | None) -> list[str]:
    """These options as words of the command for the process that runs the twin."""
    words = [] if faults is None else ["--faults", str(faults)]
    return words if walls is None else [*words, "--walls" if walls else "--no-walls"]


def open_reader(*, local: bool, place: str | None, out: Path = OUT, home: Path = HOME) -> LocalRuns | DeployedRuns:
    """The runs of the place that the options name.

    Raises:
        TrainflowError: If they name two, or the place cannot be reached.
    """
    if local and place is not None:
        raise PlaceChoice("Give --local for the twin or --place for a deployment, not both.")
    if local:
        from trainflow.client.local_runs import LocalOptions, LocalRuns

        require_folder(out)
        return LocalRuns(LocalOptions(out=out, home=home))
    return open_deployment_named(place)


def require_folder(out: Path) -> None:
    """Raises `PlaceChoice` for a folder of runs that is a file, or that was named and is not there."""
    if out.exists() and not out.is_dir():
        raise PlaceChoice(f"--out {out}: this is a file and no folder.")
    if out != OUT and not out.exists():
        raise PlaceChoice(f"--out {out}: there is no such folder.")


def open_deployment_named(place: str | None) -> DeployedRuns:
    """The runs of the deployment of this name; without one, of the default.

    Raises:
        TrainflowError: If it cannot be reached.
    """
    from trainflow.client.place_names import NamedPlace, read_names

    named = read_names().named(place)
    (named or NamedPlace(name="default", deployment="")).require_region()
    from trainflow.client.places import open_deployment

    return open_deployment(named)


def name_of_place(given: str | None) -> str | None:
    """The name that `--place`, the environment or the configuration file gives; None if none of them does.

    Raises:
        PlaceUnavailable: If the file cannot be read.
    """
    from trainflow.client.place_names import read_names

    named = read_names().named(given)
    return named.name if named else None
