"""Runs of this machine that outlive the process that starts them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trainflow.errors import TrainflowError


class NotStarted(TrainflowError):
    """A run of this machine was not started or continued; the message says why."""

    input_at_fault = True


def start_in_background(spec: Path, *, out: Path, home: Path, overrides: Sequence[Path] = ()) -> str:
    """Start the run of a spec's file in a process that outlives this one; its id.

    Args:
        spec: The file.
        out: Folder of the runs' folders.
        home: The twin's buckets and shared file system.
        overrides: Files of the same form that say what is different this time.

    Raises:
        NotStarted: With the command's sentence; nothing was started then.
    """
    return _started("run", str(spec), out, home, *(word for path in overrides for word in ("--override", str(path))))


def resume_in_background(run_id: str, *, out: Path, home: Path, changes: Sequence[str] = ()) -> str:
    """Start a run of this machine that continues another, in a process that outlives this one; its id.

    Args:
        run_id: The run to continue.
        out: Folder of the runs' folders.
        home: The twin's buckets and shared file system.
        changes: Fields of its spec that differ, as `limits.stall_minutes=30`.

    Raises:
        NotStarted: With the command's sentence; nothing was started then.
    """
    return _started("resume", run_id, out, home, *(word for change in changes for word in ("--set", change)))


def _started(command: str, subject: str, out: Path, home: Path, *words: str) -> str:
    places = ("--local", "--detach", "--no-page", "--out", str(out), "--home", str(home))
    done = subprocess.run(
        [sys.executable, "-m", "trainflow", command, subject, *places, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"`trainflow {command}` ended with {done.returncode}."]
        raise NotStarted(said[-1].removeprefix("trainflow: "))
    return done.stdout.splitlines()[-1]
