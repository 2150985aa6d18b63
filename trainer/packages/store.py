"""The shared store of packages: what Trainflow's own image installs from wheels that a run has fetched, and removes.

Only programs of Trainflow's image write here, and they run no code of a package. A set's name is the digest of its
wheels, which the store computes itself, so no run decides what another one finds (decision 92).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.packages import notes, sets

WHEELS = "wheels"
"""Folder, below a run's own, of wheels that the store has not installed yet: a folder for each set."""

DAY = 24 * 3600.0
UNUSED_DAYS = 180.0
"""A set that no run has used for this time is removed, as a compile cache is."""

IN_USE_DAYS = 7.0
"""A set that a run has used within this time stays, whatever its size. Supervisors renew it daily as long as they
stay beside their program. Where the program replaces its supervisor (Slurm), only the start does."""

LIMIT_BYTES = 100 * 2**30
"""Size of all sets above which the least recently used ones are removed."""

LEFT_DAYS = 1.0
"""Days that the folders of a killed process are kept."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A set of the store."""

    place: Path
    size: int
    used: float
    """Time of the last use, in seconds since the epoch."""


def install_fetched(own: Path, store: Path, *, stale_seconds: float = sets.STALE_SECONDS) -> list[str]:
    """Install what a run has fetched; the keys of the sets.

    Args:
        own: The run's own folder of packages.
        store: Folder of all sets.
        stale_seconds: Longest time without a sign of another process; then it counts as killed.

    Raises:
        CodeInvalid: If a file is not a wheel.
        OSError: If the store cannot be written.
    """
    installed = []
    for fetched in sorted((own / WHEELS).glob("*")):
        files = sorted(path for path in fetched.glob("*.whl") if not path.is_symlink() and path.is_file())
        if sets.KEY.fullmatch(fetched.name) and files:
            place = sets.install(files, store, stale_seconds=stale_seconds)
            installed.append(place.name)
        sets.remove(fetched)
    for note in _notes(own):
        if note.shared is not None:
            with suppress(OSError):
                (store / note.shared / sets.MARKER).touch()
    return installed


def _notes(own: Path) -> Iterator[notes.Note]:
    return (note for file in own.glob("*.json") if (note := notes.read(file)) is not None)


def clean(store: Path, runs: Path, *, now: float | None = None, limit_bytes: int = LIMIT_BYTES) -> list[str]:
    """Remove sets that no run uses, and runs' own packages that no process of the run has used for long.

    Args:
        store: Folder of all sets.
        runs: Folder with a folder of each run.
        now: Current time, in seconds since the epoch.
        limit_bytes: Size of all sets above which sets are removed that are not in use.

    Returns:
        Names of what was removed.
    """
    now = time.time() if now is None else now
    removed = [*_remove_left(store, now), *_remove_own(runs, now)]
    kept = sorted(_kept(store, runs), key=lambda each: each.used)
    total = sum(each.size for each in kept)
    for each in kept:
        idle = (now - each.used) / DAY
        if idle > UNUSED_DAYS or (total > limit_bytes and idle > IN_USE_DAYS):
            sets.remove(each.place)
            removed.append(each.place.name)
            total -= each.size
    return removed


def _kept(store: Path, runs: Path) -> Iterator[Kept]:
    used: dict[str, float] = {}
    for file in runs.glob("*/packages/*.json"):
        note = notes.read(file)
        with suppress(OSError):
            if note is not None and note.shared is not None:
                used[note.shared] = max(used.get(note.shared, 0.0), file.lstat().st_mtime)
    for place in (each for each in store.glob("*") if sets.KEY.fullmatch(each.name)):
        marker = place / sets.MARKER
        with suppress(OSError, ValueError, LookupError, TypeError):
            size = int(json.loads(marker.read_text(encoding="utf-8"))["bytes"])
            yield Kept(place=place, size=size, used=max(used.get(place.name, 0.0), marker.stat().st_mtime))


def _remove_left(store: Path, now: float) -> Iterator[str]:
    """Folders of processes that were killed."""
    for folder in store.glob(".*"):
        with suppress(OSError):
            if now - folder.lstat().st_mtime > LEFT_DAYS * DAY:
                sets.remove(folder)
                yield folder.name


def _remove_own(runs: Path, now: float) -> Iterator[str]:
    """Packages of runs that no process has used for long; a run that goes on then installs them again."""
    for folder in runs.glob("*/packages"):
        with suppress(OSError):
            newest = max((file.lstat().st_mtime for file in folder.glob("*.json")), default=folder.lstat().st_mtime)
            if not folder.is_symlink() and now - newest > UNUSED_DAYS * DAY:
                sets.remove(folder)
                yield f"{folder.parent.name}/{folder.name}"
