"""Regular files below a folder, one by one, so that a folder of any size takes little memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainer.publication.unpublished import Unpublishable


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file, and its published name."""

    path: str
    name: str
    """Path below the published prefix, with slashes."""
    size: int


class Ignored(Protocol):
    """Decides by its name whether an entry is passed over."""

    def __call__(self, name: str, *, is_folder: bool) -> bool: ...


def files_below(
    folder: Path,
    root: Path,
    *,
    skip: Callable[[Unpublishable], None],
    left_out: Collection[Path] = (),
    ignored: Ignored | None = None,
) -> Iterator[FoundFile]:
    """The regular files below a folder, in the order of their names.

    A link to a file below the root counts as that file. Links to folders are not followed: what is below the root is
    found at its own place, and loops are impossible.

    Args:
        folder: The folder.
        root: The published folder: names are relative to it, and links may lead to any file below it.
        skip: Called for each entry that cannot be published.
        left_out: Files and folders that are passed over.
        ignored: Whether a name is passed over; by default none is.
    """
    places = frozenset(map(str, left_out))
    inside = os.path.realpath(root) + os.sep
    waiting = [str(folder)]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as opened:
                entries = sorted(opened, key=lambda entry: entry.name)
        except FileNotFoundError:  # a run that has kept nothing, or a folder that was removed meanwhile
            continue
        except OSError as error:
            skip(Unpublishable(_name(place, root), f"the folder cannot be read ({error.strerror})"))
            continue
        folders = []
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.path in places or (ignored is not None and ignored(entry.name, is_folder=is_folder)):
                continue
            if is_folder:
                folders.append(entry.path)
            elif (file := _file(entry, root, inside, skip)) is not None:
                yield file
        waiting += reversed(folders)


def _file(entry: os.DirEntry[str], root: Path, inside: str, skip: Callable[[Unpublishable], None]) -> FoundFile | None:
    name = _name(entry.path, root)
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return _link(entry, name, inside, skip)
        if stat.S_ISREG(status.st_mode):
            return FoundFile(entry.path, name, status.st_size)
        skip(Unpublishable(name, "it is not a regular file"))
    except OSError as error:
        skip(Unpublishable(name, f"it cannot be read ({error.strerror})"))
    return None


def _link(entry: os.DirEntry[str], name: str, inside: str, skip: Callable[[Unpublishable], None]) -> FoundFile | None:
    """The file that a link leads to. A link to a folder below the root is passed over: its files are published."""
    target = os.path.realpath(entry.path)
    if not f"{target}{os.sep}".startswith(inside):
        skip(Unpublishable(name, "it is a link to a place outside of the run's folder"))
        return None
    try:
        status = os.stat(target)  # noqa: PTH116  (strings: there may be thousands)
    except OSError:
        skip(Unpublishable(name, "it is a link to nothing"))
        return None
    return FoundFile(target, name, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _name(path: str, root: Path) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")
