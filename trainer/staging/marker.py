"""The marker that says what a folder holds, and whether it still does.

It lies beside the folder, so that the folder holds the data set's files alone. `place` sees to it that it never vouches
for other files than those it was written for; the folder's inode number in it tells that somebody made another folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trainer.runtime.files import written_whole

INSIDE = "_READY"
"""Where the marker was before it lay beside the folder: still read there, and never part of a data set."""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What the marker file says of a data set."""

    url: str
    etag: str
    """Of the source's version: another version has another."""
    files: int
    bytes: int
    num_shards: int | None
    """None if nobody looked for shards."""
    num_samples: int | None
    sha256: str | None = None
    """Of the archive, if somebody calculated it."""
    manifest: str | None = None
    """Digest of the manifest that every file was checked against."""


def path_of(folder: Path) -> Path:
    """Where a folder's marker lies: beside it."""
    return folder.with_name(f".{folder.name}.ready")


def read(folder: Path) -> Marker | None:
    """The marker of a staged data set; None if there is none that can be read."""
    if not folder.is_dir():
        return None
    return read_file(path_of(folder)) or read_file(folder / INSIDE)


def read_file(path: Path) -> Marker | None:
    """What a marker file says; None if it is not there, or says nothing that can be read."""
    with suppress(TypeError):
        said = _content(path)
        if "url" in said:
            return Marker(**{field.name: said[field.name] for field in fields(Marker) if field.name in said})
    return None


def write(marker: Marker, folder: Path, path: Path) -> None:
    """Say in a file what a folder holds, whole; the folder may be renamed later.

    Args:
        marker: What it holds.
        folder: The data set.
        path: Of the marker file.
    """
    said = {**asdict(marker), "inode": folder.stat().st_ino}
    with written_whole(path) as file:
        file.write(json.dumps(said, indent=2).encode() + b"\n")


def keep(marker: Marker, folder: Path) -> None:
    """Write the marker of a data set that stays where it is; from here on, it lies beside it."""
    moves = is_inside(folder)
    write(marker, folder, path_of(folder))
    if moves:
        (folder / INSIDE).unlink(missing_ok=True)


def is_inside(folder: Path) -> bool:
    """Whether an earlier version of the stager left the only marker among the folder's files."""
    return not path_of(folder).exists() and (folder / INSIDE).exists()


def is_about(path: Path, folder: Path) -> bool:
    """Whether a marker file was written for this very folder, not for one that lay there before."""
    with suppress(OSError):
        return bool(_content(path).get("inode") == folder.stat().st_ino)
    return False


def is_complete(folder: Path, marker: Marker) -> bool:
    """Whether what the marker vouches for is still there."""
    return inventory(folder) == (marker.files, marker.bytes)


def inventory(folder: Path) -> tuple[int, int]:
    """Number of files and of their bytes."""
    sizes = [entry.stat(follow_symlinks=False).st_size for entry in files_below(folder)]
    return len(sizes), sum(sizes)


def files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Every file but markers and links."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(entry.path)
            elif entry.is_file(follow_symlinks=False) and entry.name != INSIDE:
                yield entry


def _content(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        said = json.loads(path.read_text())
        return said if isinstance(said, dict) else {}
    return {}
