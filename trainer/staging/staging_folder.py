"""Makes a data set beside its destination and moves it there, one stager at a time, in steps that survive a crash.

The marker lies beside the data set, so no single rename moves both. The marker is written into the workplace first:
from then on the data set is complete, and the next attempt continues with the remaining steps. At the destination, the
old marker is removed before other files come there, and the new one is written after them. So a marker never describes
files that it was not written for.
"""

from __future__ import annotations

import errno
import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer.runtime.errors import DatasetInvalid, DestinationNotEmpty, StorageFailed
from trainer.runtime.files import sync_folder
from trainer.staging import marker
from trainer.staging.marker import Marker
from trainflow.protocol.staging_line import WAITING

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk; the files of the attempt are removed then, to make room."""


@dataclass(frozen=True)
class Workplace:
    """Hidden folder beside the destination, for making a data set."""

    root: Path

    @property
    def data(self) -> Path:
        """The new data set, until it is moved to its destination."""
        return self.root / "data"

    @property
    def old(self) -> Path:
        """The data set that is replaced, until it is removed."""
        return self.root / "old"

    @property
    def marker(self) -> Path:
        """The marker, until it is moved beside the data set. Once it exists, the new data set is complete."""
        return self.root / "ready"

    @property
    def completed_files(self) -> Path:
        """The record of the files that are complete; its name is that of earlier versions, whose remains are read."""
        return self.root / "journal"

    def clear(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)


@contextmanager
def alone(destination: Path) -> Iterator[None]:
    """Lock the destination, so that one stager works on it and the next one finds the data set there.

    Raises:
        StorageFailed: If it is not writable, or its file system lacks locks.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        lock = (destination.parent / f".{destination.name}.lock").open("w")
    except OSError as error:
        raise StorageFailed(f"--destination {destination} cannot be written ({error}); give another folder.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{WAITING}{destination}; waiting until it is done.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise StorageFailed(
                f"The file system of {destination} cannot lock a file ({error.strerror}), so two runs could stage into "
                "one folder; mount it with the option `flock`."
            ) from error
        yield


@contextmanager
def workplace(destination: Path, *, url: str) -> Iterator[Workplace]:
    """Make a folder for a new data set. Complete files stay for the next attempt.

    Args:
        destination: The final folder of the data set.
        url: The URL of the source.

    Raises:
        DestinationNotEmpty: If the destination holds another data set, or other files.
        StorageFailed: If the folder cannot be made.
    """
    _require_free(destination, url)
    place = _hidden_workplace(destination)
    try:
        place.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"The folder {place.root} cannot be made ({error}); give another --destination.") from error
    try:
        yield place
    except DatasetInvalid:
        place.clear()
        raise
    except StorageFailed as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_ROOM:
            place.clear()
        raise


def put_into_place(place: Workplace, destination: Path, staged: Marker) -> None:
    """Move the new data set to its destination, where it replaces the old one.

    Args:
        place: The folder of the new data set, which is complete and forced to the disk.
        destination: The final folder of the data set.
        staged: The marker of the new data set.

    Raises:
        DestinationNotEmpty: If other files have appeared there meanwhile.
    """
    marker.write(staged, place.data, place.marker)
    finish(destination)


def finish(destination: Path) -> None:
    """Complete the remaining steps of an attempt that ended after its data set was complete; else do nothing.

    Raises:
        DestinationNotEmpty: If other files have appeared there meanwhile.
    """
    place = _hidden_workplace(destination)
    staged = marker.read_file(place.marker)
    if staged is None:
        shutil.rmtree(place.old, ignore_errors=True)  # of an attempt that ended before it removed the old data set
        return
    ready = marker.marker_path(destination)
    if place.data.exists():
        _require_free(destination, staged.url)
        if destination.exists():
            shutil.rmtree(place.old, ignore_errors=True)
            destination.rename(place.old)  # a folder cannot be replaced in one step unless it is empty
        ready.unlink(missing_ok=True)
        sync_folder(destination.parent)
        place.data.rename(destination)
        sync_folder(destination.parent)
    if marker.is_about(place.marker, destination):
        place.marker.replace(ready)
        sync_folder(destination.parent)
    place.clear()


def _hidden_workplace(destination: Path) -> Workplace:
    return Workplace(destination.parent / f".{destination.name}.staging")


def _require_free(destination: Path, url: str) -> None:
    """Refuse to replace files that the stager did not write, or another data set, which a training may be reading."""
    if not destination.is_dir() or not any(destination.iterdir()):
        return
    if not (marker.is_about(marker.marker_path(destination), destination) or marker.is_inside(destination)):
        raise DestinationNotEmpty(
            f"The folder {destination} holds files and no marker beside it says that they were staged, so nothing is "
            "replaced; empty it, or give another --destination."
        )
    there = marker.read(destination)
    if there is not None and there.url != url:
        raise DestinationNotEmpty(
            f"The folder {destination} holds the data set of {there.url}, which runs may be reading, so that of {url} "
            "does not replace it; give it a folder of its own with dataset.name (--destination), or remove the other."
        )
