"""Whether the runs that a spec continues have left a checkpoint in the twin's shared file system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from trainflow.protocol import variables
from trainflow.protocol.resume_bounds import bounds_text
from trainflow.spec.run_spec import RunSpec


def nothing_to_continue(spec: RunSpec, *, runs: Path, repository: Path) -> str | None:
    """The reason why a run cannot continue the runs that its spec names; None if it can.

    The program is the one of the preflight, so that it finds what the run would find. None also if that cannot be
    started here: the run's preflight reports it.

    Args:
        spec: The spec, with `resume_from`.
        runs: Folder of the runs' folders in the shared file system.
        repository: Folder of the package `trainer`.
    """
    command = [sys.executable, "-m", "trainer.probe", "--executable", sys.executable, *spec.checkpoint_words, "--"]
    # No folder has this name: a run's id begins with a letter.
    own = {variables.RUN_DIR: str(runs.absolute() / ".new"), variables.RESUME_FROM: ",".join(spec.resume_from)}
    own[variables.RESUME_UNTIL] = bounds_text(spec.bounds)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRAINFLOW_")}
    done = subprocess.run(
        command, cwd=repository, env={**inherited, **own}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return None
    reason: str | None = json.loads(done.stdout.splitlines()[-1])["continues"]
    return reason
