"""Copies of what a run has published, made by commands."""

# Each command imports what it needs; see trainflow/cli/main.py.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trainflow.client.artifacts import Artifact
    from trainflow.client.place import RunReader


def copied(reader: RunReader, artifact: Artifact, folder: Path) -> Path | None:
    """Copy an artifact to a folder; the path of the copy. One that is refused is named on the standard error: None."""
    from trainflow.client.artifacts import ArtifactRefused, copy_below

    try:
        return copy_below(folder, artifact, reader.fetch)
    except ArtifactRefused as refused:
        typer.echo(str(refused), err=True)
        return None
