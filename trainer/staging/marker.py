"""The marker that says what a folder holds, and whether it still does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from trainer.files import written_whole
from trainer.staging.source import MARKER


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What the marker file says of the data set beside it."""

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


def read(folder: Path) -> Marker | None:
    """The marker of a staged data set; None if there is none that can be read."""
    with suppress(OSError, ValueError, TypeError):
        said = json.loads((folder / MARKER).read_text())
        return Marker(**{field.name: said[field.name] for field in fields(Marker) if field.name in said})
    return None


def write(marker: Marker, folder: Path) -> None:
    """Put it there, whole."""
    with written_whole(folder / MARKER) as file:
        file.write(json.dumps(asdict(marker), indent=2).encode() + b"\n")


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
            elif entry.is_file(follow_symlinks=False) and entry.name != MARKER:
                yield entry
