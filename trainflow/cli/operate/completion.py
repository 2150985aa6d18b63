"""Shell completion besides commands and options: run ids, spec files, names of places.

Each is read from this machine only, and only by its names: a person waits for it at every press of the Tab key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import typer

from trainflow.client.hints import OUT

RUN_FILES = ("started.json", "run.json", "twin.json", "logs")
"""Files of a run's folder; each such folder has one of them."""

SPEC_ENDINGS = (".yaml", ".yml", ".json")

MAX_FOLDERS = 100
"""Maximum number of folders below the typed one that are searched for specs."""


def run_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the runs that have left a folder on this machine, or go on there; the one that was changed last first.

    Those of a deployment are among them if they were followed to their end from here: others only AWS knows.
    """
    out = Path(context.params.get("out") or OUT)
    found = sorted(
        (folder.stat().st_mtime, folder.name)
        for folder in _entries(out)
        if folder.name.startswith(incomplete) and not folder.is_symlink() and _is_run(Path(folder.path))
    )
    return [name for _, name in reversed(found)]


def spec_files(incomplete: str) -> list[str]:
    """YAML and JSON files of the folder that is typed, and of the folders in it."""
    typed = incomplete.rpartition("/")[0] + "/" if "/" in incomplete else ""
    folders = [folder.name for folder in _entries(Path(typed)) if not folder.name.startswith(".") and folder.is_dir()]
    names = [
        *_specs(Path(typed)),
        *(f"{folder}/{name}" for folder in sorted(folders)[:MAX_FOLDERS] for name in _specs(Path(typed) / folder)),
    ]
    return [f"{typed}{name}" for name in names if f"{typed}{name}".startswith(incomplete)]


def place_names(incomplete: str) -> list[tuple[str, str]]:
    """Names of the configuration file, with the deployments that they stand for."""
    from trainflow.client.place_names import read_names
    from trainflow.errors import TrainflowError

    try:
        places = read_names().places.values()
    except TrainflowError:  # the command itself tells what is wrong with the file
        return []
    return [(place.name, f"deployment {place.deployment}") for place in places if place.name.startswith(incomplete)]


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in RUN_FILES)


def _specs(folder: Path) -> list[str]:
    return sorted(entry.name for entry in _entries(folder) if entry.name.endswith(SPEC_ENDINGS) and entry.is_file())


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return
