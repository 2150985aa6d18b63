"""The marker file, which describes the content of a folder.

The marker lies beside the folder, so that the folder holds only the data set's files. `staging_folder` makes sure that
a marker never describes other files than those it was written for. The folder's inode number in the marker shows
whether the folder was replaced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from trainer.runtime.files import written_whole

INSIDE = "_READY"
"""Name of the marker in earlier versions, which kept it in the folder. It is still read there, and never counts as a
file."""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The content of a marker file."""

    url: str
    etag: str
    """ETag or digest of the source; another version of the source has another one."""
    files: int
    bytes: int
    num_shards: int | None
    """Number of shards; None if they were not counted."""
    num_samples: int | None
    sha256: str | None = None
    """SHA-256 of the archive; None if it was not computed."""
    manifest: str | None = None
    """Digest of the manifest that every file was checked against."""
    verified: str | None = None
    """Kind of checksum that the bytes were compared with when they were brought; None without checksums."""
    shard_sha256: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the shards by their path, computed while they were written: the trainer compares them."""


# Decision 30: programs that list the data set must not see the marker.
def marker_path(folder: Path) -> Path:
    """Path of a folder's marker, which lies beside the folder."""
    return folder.with_name(f".{folder.name}.ready")


def read(folder: Path) -> Marker | None:
    """Read the marker of a staged data set; None if it is missing or unreadable."""
    if not folder.is_dir():
        return None
    return read_file(marker_path(folder)) or read_file(folder / INSIDE)


def read_file(path: Path) -> Marker | None:
    """Read a marker file; None if it does not exist or cannot be read."""
    with suppress(TypeError):
        said = _content(path)
        if "url" in said:
            return Marker(**{field.name: said[field.name] for field in fields(Marker) if field.name in said})
    return None


def write(marker: Marker, folder: Path, path: Path) -> None:
    """Write a marker file in one step; the folder that it describes may be renamed later.

    Args:
        marker: The content of the marker.
        folder: The folder of the data set.
        path: The path of the marker file.
    """
    said = {**asdict(marker), "inode": folder.stat().st_ino}
    with written_whole(path) as file:
        file.write(json.dumps(said, indent=2).encode() + b"\n")


def keep(marker: Marker, folder: Path) -> None:
    """Write the marker of a data set that stays where it is; the marker lies beside the data set from then on."""
    moves = is_inside(folder)
    write(marker, folder, marker_path(folder))
    if moves:
        (folder / INSIDE).unlink(missing_ok=True)


def is_inside(folder: Path) -> bool:
    """Whether an earlier version of the stager left the only marker among the folder's files."""
    return not marker_path(folder).exists() and (folder / INSIDE).exists()


def is_about(path: Path, folder: Path) -> bool:
    """Whether a marker file was written for this very folder, and not for another one that had the same name."""
    with suppress(OSError):
        return bool(_content(path).get("inode") == folder.stat().st_ino)
    return False


def is_complete(folder: Path, marker: Marker) -> bool:
    """Whether the files that the marker describes are still there."""
    return inventory(folder) == (marker.files, marker.bytes)


def inventory(folder: Path) -> tuple[int, int]:
    """Number of files in a folder, and of their bytes."""
    sizes = [entry.stat(follow_symlinks=False).st_size for entry in files_below(folder)]
    return len(sizes), sum(sizes)


def files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Iterate over every file below a folder, without markers and links."""
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
