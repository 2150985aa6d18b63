"""Commands that messages advise, which a person can paste."""

from __future__ import annotations

import shlex
from pathlib import Path

from trainflow.record.run_commands import RUN, pasted

OUT = Path("out")
"""Folder of the runs' folders where the command line names none."""

HOME = Path(".trainflow")


def local_words(*, out: Path = OUT, home: Path = HOME) -> tuple[str, ...]:
    """Options of a command for runs of this machine, with the folders that differ from the defaults."""
    words = ["--local"]
    words += ["--out", str(out)] if out != OUT else []
    words += ["--home", str(home)] if home != HOME else []
    return tuple(words)


def place_words(place: str | None) -> tuple[str, ...]:
    """The same for runs of a deployment; None is the default place."""
    return () if place is None else ("--place", place)


def local_hint(command: str, run_id: str, *, out: Path = OUT, home: Path = HOME) -> str:
    """A command for a run of this machine."""
    return pasted(f"trainflow {command} {RUN}", run_id, local_words(out=out, home=home))


def deployed_hint(command: str, run_id: str, *, place: str | None) -> str:
    """The same for a run of a deployment."""
    return pasted(f"trainflow {command} {RUN}", run_id, place_words(place))


def list_hint(words: tuple[str, ...]) -> str:
    """The command that lists the runs of a place."""
    return shlex.join(["trainflow", "list", *words])
