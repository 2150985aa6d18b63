"""Commands that messages advise, which a person can paste."""

from __future__ import annotations

import shlex
from pathlib import Path

from trainflow.cli.operate.completion import OUT

HOME = Path(".trainflow")


def local_hint(command: str, run_id: str, *, out: Path = OUT, home: Path = HOME) -> str:
    """A command for a run of this machine, with the folders that differ from the defaults."""
    words = ["trainflow", command, run_id, "--local"]
    words += ["--out", str(out)] if out != OUT else []
    words += ["--home", str(home)] if home != HOME else []
    return shlex.join(words)


def deployed_hint(command: str, run_id: str, *, place: str | None) -> str:
    """The same for a run of a deployment; None is the default place."""
    return shlex.join(["trainflow", command, run_id, *(["--place", place] if place is not None else [])])
